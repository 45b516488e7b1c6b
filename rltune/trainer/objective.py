"""One optimiser step: losses of a mini-batch, its gradient in micro-batches, and the update."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.errors import DivergedError
from rltune.losses.kl import full_kl, kl_penalty
from rltune.losses.reduce import TrainedCounts, aggregate, count_trained, side_divisor
from rltune.losses.value import value_loss
from rltune.maths.masked import masked_sum
from rltune.maths.streams import stream_seed
from rltune.policy.dropout import dropping
from rltune.policy.logprobs import action_hidden, head_weight
from rltune.policy.row_tree import RowTree
from rltune.remote.model import RemoteAdamW
from rltune.rollout.tokens import TokenBatch, take_rows
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.dealing import Share
from rltune.trainer.batches.micro_batches import limit_of
from rltune.trainer.batches.mini_batches import MiniBatchPlan, plan_update
from rltune.trainer.batches.pending import exchange, known, record, require_known
from rltune.trainer.credit.estimate import Credit
from rltune.trainer.policy_loss import policy_loss
from rltune.trainer.ranks.group import Group
from rltune.trainer.ranks.keep_step import keep_step
from rltune.trainer.ranks.scoring import ActionScores, score_actions
from rltune.trainer.ranks.shard import whole_model
from rltune.trainer.train_state import Signals, TrainState

Sums = dict[str, float]
OnEntropy = Callable[[Tensor], None]
"""Takes the entropy of each sampled token of a micro-batch, (M,), in nats."""


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """Rows of one optimiser step with what the objective needs for them."""

    batch: TokenBatch
    signals: Signals
    credit: Credit

    def rows(self, index: Tensor) -> "MiniBatch":
        """Return the given rows, cut to their own longest length."""
        batch = self.batch.rows(index)
        width = batch.ids_NT.shape[1]
        return MiniBatch(
            batch, take_rows(self.signals, index, width), take_rows(self.credit, index, width)
        )


def update(
    train_state: TrainState,
    data: MiniBatch,
    config: TrialConfig,
    *,
    step: int,
    kl_coef: float,
    on_entropy: OnEntropy | None = None,
    plan: tuple[MiniBatchPlan, ...] | None = None,
) -> Sums:
    """Train on one batch: `epochs` passes in shuffled mini-batches; return the step's metrics.

    A metric is the mean over the mini-batches that have it: one without anything to train on has a
    gradient norm of 0 and no entropy. `on_entropy` looks on. `plan` is what `plan_update` gives for
    this batch and step, where it is known already.

    Raises:
        DivergedError: A loss or a gradient is not finite; the weights are those before the bad
            optimiser step.

    """
    if plan is None:
        limit = limit_of(train_state.policy, config, train_state.pair_cost)
        share = Share(train_state.group.rank, train_state.group.size)
        plan = plan_update(data.batch, config, step=step, limit=limit, share=share)
    require_known(data.signals, plan)
    per_step: dict[str, list[float]] = defaultdict(list)
    for mini_batch in plan:
        made = _optimizer_step(
            train_state,
            data,
            config,
            mini_batch,
            step=step,
            kl_coef=kl_coef,
            on_entropy=on_entropy,
        )
        for name, value in made.items():
            per_step[name].append(value)
    means = {name: sum(values) / len(values) for name, values in per_step.items()}
    return {**means, "budget/optimizer_steps": float(len(plan))}


def _optimizer_step(
    train_state: TrainState,
    data: MiniBatch,
    config: TrialConfig,
    mini_batch: MiniBatchPlan,
    *,
    step: int,
    kl_coef: float,
    on_entropy: OnEntropy | None,
) -> Sums:
    """Accumulate the gradient of one mini-batch and apply it.

    A mini-batch in which every row was masked out still makes its step, with a gradient of zero, so
    that conditions differ in what they learn from and not in how many steps they make. (AdamW's
    momentum and weight decay go on in such a step, as in any other.)
    """
    actor, critic, group = train_state.actor, train_state.critic, train_state.group
    trained = [actor] if critic is None else [actor, critic]
    is_warmup = critic is not None and step <= config.critic.warmup_steps
    for module in trained:
        _zero_gradients(module)
    counts = count_trained(data.batch.action_mask_NT[mini_batch.rows])
    sums: Sums = defaultdict(float)
    place = (step, mini_batch.epoch, mini_batch.nth)
    for nth, own in enumerate(mini_batch.parts):
        seed = stream_seed(config.seed, "lora-dropout", *place, nth)
        with dropping(*trained, seed=seed):
            if own.is_idle:
                keep_step(train_state, data.batch.rows(own.rows), config)
                continue
            part = data.rows(own.rows)
            logp_BT = _backward(
                train_state, part, own.tree, config, counts, kl_coef, sums, on_entropy
            )
        record(data.signals, own.rows, logp_BT)
    exchange(data.signals, mini_batch, group)
    sums = group.added(sums)
    if isinstance(train_state.actor_optimizer, RemoteAdamW):
        return {**sums, **_remote_step(train_state.actor_optimizer, sums, step)}
    norms = {"actor/grad_norm": _clip(actor, config.optim.grad_clip, group)}
    if critic is not None:
        norms["critic/grad_norm"] = _clip(critic, config.optim.grad_clip, group)
    _require_finite({**sums, **norms}, step)
    if not is_warmup:
        train_state.actor_optimizer.step()
    if train_state.critic_optimizer is not None:
        train_state.critic_optimizer.step()
    return {**sums, **norms}


def _backward(
    train_state: TrainState,
    data: MiniBatch,
    tree: RowTree | None,
    config: TrialConfig,
    counts: TrainedCounts,
    kl_coef: float,
    sums: Sums,
    on_entropy: OnEntropy | None,
) -> Tensor:
    """Add the gradient of one micro-batch, normalised by the counts of its mini-batch.

    total = policy loss - (entropy_coeff sum(H) - kl_coef sum(KL)) / side divisor

    The metrics of entropy, KL and value loss are means over tokens whatever that divisor is.

    Returns:
        The logprobs of its sampled tokens, (B, T), before the update.

    """
    ids, mask, loss = data.batch.ids_NT, data.batch.action_mask_NT, config.loss
    scores = score_actions(
        train_state.actor,
        ids,
        mask,
        temperature=config.rollout.temperature,
        entropy="gradient" if loss.entropy_coeff else "value",
        tree=tree,
    )
    zeros = scores.tokens.logprobs_M.new_zeros(mask.shape)
    logp_BT = zeros.masked_scatter(mask, scores.tokens.logprobs_M)
    policy = policy_loss(logp_BT, data.batch, known(data.signals, logp_BT), data.credit, loss)
    pg_loss = aggregate(
        policy.per_token_BT,
        mask,
        mode=loss.aggregation,
        n_tokens=counts.n_tokens,
        n_sequences=counts.n_sequences,
        mini_batch_size=config.optim.mini_batch_size,
        sum_norm=loss.sum_norm,
    )
    divisor = _side_divisor(config, counts)
    total = pg_loss
    sums["actor/pg_loss"] += pg_loss.item()
    if scores.tokens.entropy_M is not None:
        entropy = _entropy(scores.tokens.entropy_M, mask)
        sums["actor/entropy"] += entropy.item() / counts.n_tokens
        if on_entropy is not None:
            on_entropy(scores.tokens.entropy_M.detach())
        if loss.entropy_coeff:
            total = total - loss.entropy_coeff * (entropy / divisor)
    if data.signals.ref_logp_NT is not None:
        kl_BT = _kl(
            train_state, scores, logp_BT, data.signals.ref_logp_NT, data.batch, tree, config
        )
        kl = masked_sum(kl_BT, mask)
        sums["actor/kl_loss"] += kl.item() / counts.n_tokens
        total = total + kl_coef * (kl / divisor)
    torch.autograd.backward(total)
    for name, value in policy.sums.items():
        sums[name] += value.item() / counts.n_tokens
    if train_state.critic is not None:
        values_M = train_state.critic(ids, mask, scores.hidden_MD, tree)
        _backward_critic(values_M, data, mask, config, counts, sums)
    return logp_BT.detach()


def _side_divisor(config: TrialConfig, counts: TrainedCounts) -> float:
    return side_divisor(
        config.loss.aggregation,
        n_tokens=counts.n_tokens,
        mini_batch_size=config.optim.mini_batch_size,
        sum_norm=config.loss.sum_norm,
    )


def _entropy(values_M: Tensor, mask: Tensor) -> Tensor:
    """Return the entropy summed over the sampled tokens."""
    return masked_sum(values_M.new_zeros(mask.shape).masked_scatter(mask, values_M), mask)


def _kl(
    train_state: TrainState,
    scores: ActionScores,
    logp_BT: Tensor,
    ref_logp_BT: Tensor,
    batch: TokenBatch,
    tree: RowTree | None,
    config: TrialConfig,
) -> Tensor:
    """Return the KL to the reference of each token, (B, T).

    `full` is the exact sum over the vocabulary: it runs the reference again and holds two sets of
    logits, which the schema allows for a small vocabulary only.
    """
    kind, mask = config.loss.kl_type, batch.action_mask_NT
    if kind.removesuffix("+") != "full":
        return kl_penalty(logp_BT, ref_logp_BT, kind=kind)
    if train_state.reference is None:
        raise ValueError("a KL term needs the reference policy")
    with torch.no_grad():
        start = whole_model(train_state.reference)
        ref_hidden_MD = action_hidden(start.base_model, batch.ids_NT, mask, tree=tree)
        ref_logits_MV = ref_hidden_MD @ head_weight(start).T
    logits_MV = scores.hidden_MD @ head_weight(whole_model(train_state.actor)).T
    temperature = config.rollout.temperature
    exact_M = full_kl(logits_MV / temperature, ref_logits_MV / temperature)
    exact_BT = exact_M.new_zeros(mask.shape).masked_scatter(mask, exact_M)
    if kind == "full":
        return exact_BT
    surrogate_BT = kl_penalty(logp_BT, ref_logp_BT, kind="k2")
    return exact_BT.detach() + (surrogate_BT - surrogate_BT.detach())


def _backward_critic(
    values_M: Tensor,
    data: MiniBatch,
    mask: Tensor,
    config: TrialConfig,
    counts: TrainedCounts,
    sums: Sums,
) -> None:
    """Add the critic's gradient of one micro-batch; its tokens weigh as those of entropy and KL."""
    if data.signals.values_NT is None or data.credit.returns_NT is None:
        raise ValueError("the critic needs old values and returns")
    value = value_loss(
        values_M.new_zeros(mask.shape).masked_scatter(mask, values_M),
        data.signals.values_NT,
        data.credit.returns_NT,
        mask_BT=mask,
        value_clip=config.critic.value_clip,
    )
    vf_loss = masked_sum(value.per_token_BT, mask)
    torch.autograd.backward(vf_loss / _side_divisor(config, counts))
    sums["critic/vf_loss"] += vf_loss.item() / counts.n_tokens
    for name, total in value.sums.items():
        sums[name] += total.item() / counts.n_tokens


def _zero_gradients(module: torch.nn.Module) -> None:
    """Set every gradient to zeros, also one that does not exist yet.

    AdamW skips a parameter without a gradient. A mini-batch with nothing to train on must not mean
    something else at the start, and after a resume, than later on.
    """
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
        elif parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)


def _remote_step(optimizer: RemoteAdamW, sums: Sums, step: int) -> Sums:
    """Make the step of a service, which clips; return the gradient's norm where it tells that."""
    _require_finite(sums, step)
    norm = optimizer.step()
    return {} if math.isnan(norm) else {"actor/grad_norm": norm}


def _clip(module: torch.nn.Module, limit: float, group: Group) -> float:
    return float(group.whole(torch.nn.utils.clip_grad_norm_(module.parameters(), limit)))


def _require_finite(numbers: Sums, step: int) -> None:
    bad = {name: value for name, value in numbers.items() if not math.isfinite(value)}
    if bad:
        raise DivergedError(
            f"step {step}: {', '.join(f'{name} is {value}' for name, value in bad.items())}. "
            "The last checkpoint is kept; lower optim.lr or critic.lr, or tighten optim.grad_clip."
        )
