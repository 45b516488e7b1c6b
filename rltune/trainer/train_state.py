"""The trained state of a trial: policy, critic, reference, optimisers; and scoring with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from rltune.losses.entropy import EntropyUse
from rltune.maths.streams import stream_seed
from rltune.policy.gold import GoldCopy
from rltune.policy.gold_scores import gold_logprobs, hidden_with_gold
from rltune.policy.kv_cache import new_kv_cache
from rltune.policy.load import CausalLM, Policy, frozen_digest
from rltune.policy.logprobs import head_chunk
from rltune.policy.lora import trained_parameters
from rltune.policy.model_check import why_rows
from rltune.policy.row_tree import RowTree, attention_cost
from rltune.policy.value_head import ValueModel, copy_of_trained, frozen_copy
from rltune.remote.model import RemoteAdamW, RemoteModel, RemoteStart
from rltune.rollout.tokens import TokenBatch
from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.micro_batches import MicroBatch
from rltune.trainer.ranks.group import ALONE, Group
from rltune.trainer.ranks.scoring import ActionScores, score_actions, score_hidden
from rltune.trainer.ranks.shard import ShardedModel, shard_critic, shard_model, whole_model


@dataclass
class TrainState:
    """The mutable part of a trial.

    Attributes:
        policy: What is trained. On several ranks each has it in shards; but the first has it whole,
            as of the last update, where it samples with it (`is_copied`).
        reference: Frozen copy of the policy (with LoRA, of its adapter) at the trial's start; None
            when no KL term is on.
        critic: None when the advantage needs no values.
        actor_optimizer: AdamW over the policy.
        critic_optimizer: AdamW over the critic.
        start: The same for the gates' KL to the start; None where none is measured.
        why_rows: Why rows that share a prefix are run as they are; None where they are not.
        group: The ranks that train it.
        sharded: On several ranks, the policy that is trained: this rank's shards of it.
        is_copied: Whether the first of several ranks has the whole policy beside its shards.
        frozen: Digests of the frozen weights that are in shards: `policy`, `critic`; empty where
            none are. The first rank's; the others need none.

    """

    policy: Policy
    reference: CausalLM | ShardedModel | None
    critic: ValueModel | None
    actor_optimizer: torch.optim.Optimizer | RemoteAdamW
    critic_optimizer: torch.optim.Optimizer | None
    why_rows: str | None = "nothing was asked of this policy"
    start: CausalLM | ShardedModel | None = None
    group: Group = ALONE
    sharded: ShardedModel | None = None
    is_copied: bool = False
    frozen: Mapping[str, str] = field(default_factory=dict)

    @property
    def actor(self) -> CausalLM | ShardedModel:
        """The policy's weights that are trained."""
        return self.policy.model if self.sharded is None else self.sharded

    @property
    def pair_cost(self) -> float | None:
        """The policy's `attention_cost`; None where rows share no prefixes."""
        return None if self.why_rows else attention_cost(self.policy.model)


def make_train_state(policy: Policy, config: TrialConfig, group: Group = ALONE) -> TrainState:
    """Make the state around a freshly loaded policy, or this rank's part of it."""
    if isinstance(policy.model, RemoteModel):
        return _remote_state(policy, config)
    critic, frozen = None, {}
    if group.size > 1 and group.rank == 0:
        frozen["policy"] = frozen_digest(policy.model)
    if config.advantage.kind in CRITIC_KINDS:
        torch.manual_seed(stream_seed(config.seed, "critic"))
        critic = ValueModel(policy.model, backbone=config.critic.backbone)
        frozen["critic"] = shard_critic(critic, group)  # one model after the other: less memory
    has_reference, is_measured = config.loss.use_kl_loss, config.gate.start_kl
    start = None
    if has_reference or is_measured:
        start = shard_model(frozen_copy(policy.model), group)
    why = why_rows(policy.model, max_context=config.rollout.max_context)
    is_copied = group.size > 1 and config.resources.engine == "shared"
    is_kept = is_copied and group.rank == 0
    actor = shard_model(copy_of_trained(policy.model) if is_kept else policy.model, group)
    optim = config.optim

    def adamw(module: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            trained_parameters(module).values(),
            lr=lr,
            betas=optim.betas,
            weight_decay=optim.weight_decay,
            fused=True,  # one pass over the memory of a parameter, and no copies of it
        )

    return TrainState(
        policy=policy,
        reference=start if has_reference else None,
        critic=critic,
        actor_optimizer=adamw(actor, optim.lr),
        critic_optimizer=adamw(critic, config.critic.lr) if critic is not None else None,
        why_rows=why,
        group=group,
        sharded=actor if isinstance(actor, ShardedModel) else None,
        is_copied=is_copied,
        frozen=frozen,
        start=start if is_measured else None,
    )


def _remote_state(policy: Policy, config: TrialConfig) -> TrainState:
    """Make the state of a policy that a service trains: no critic, and the base as reference."""
    optim = config.optim
    adamw = RemoteAdamW(
        policy.model,
        lr=optim.lr,
        betas=optim.betas,
        weight_decay=optim.weight_decay,
        grad_clip=optim.grad_clip,
    )
    reference = RemoteStart(policy.model.session) if config.loss.use_kl_loss else None
    return TrainState(policy, reference, None, adamw, None, why_rows="a service computes them")


def updates_made(optimizer: torch.optim.Optimizer | RemoteAdamW | None) -> int:
    """Return how often an optimiser has moved its parameters: its own count, which a resume keeps.

    A critic warm-up leaves the policy's as it is. A mini-batch with nothing to train on counts:
    momentum and weight decay go on in it.
    """
    if optimizer is None:
        return 0
    return max((int(entry["step"]) for entry in optimizer.state.values()), default=0)


@torch.no_grad()
def actor_logprobs(
    train_state: TrainState, ids_BT: Tensor, action_mask_BT: Tensor, temperature: float
) -> Tensor:
    """Return the logprobs (M,) of sampled tokens by what is trained."""
    scores = score_actions(train_state.actor, ids_BT, action_mask_BT, temperature=temperature)
    return scores.tokens.logprobs_M


@dataclass(frozen=True, slots=True)
class Signals:
    """Inputs of credit and objective beyond rewards, (N, T), 0 outside the action mask."""

    old_logp_NT: Tensor  # logprobs under the policy that begins the step, by the trainer's own pass
    ref_logp_NT: Tensor | None  # logprobs under the reference; None when no KL term is on
    values_NT: Tensor | None  # the critic's values; None without a critic
    # entropy over the vocabulary, in nats; None where it was not asked for
    entropy_NT: Tensor | None = None
    # (N,) boolean: rows whose old logprobs are those of the update's first pass, and NaN until
    # then; None where there are none
    is_pending_N: Tensor | None = None


class GoldAnswers(Protocol):
    """Gold answers that are scored along with the rows of a batch, as `credit.info_gain` does."""

    def copies(self, index: Tensor) -> list[list[GoldCopy]]:
        """Return the answers of some rows of the batch."""

    def keep(self, index: Tensor, scores_BJ: Tensor) -> None:
        """Take the mean log-probability of each of them, in nats; NaN where a row has fewer."""


@torch.no_grad()
def score_batch(
    train_state: TrainState,
    batch: TokenBatch,
    *,
    temperature: float,
    parts: Sequence[MicroBatch],
    pending: Sequence[MicroBatch] = (),
    with_entropy: bool = False,
    gold: GoldAnswers | None = None,
) -> Signals:
    """Score rows with the current policy, the reference and the critic, in micro-batches.

    Args:
        train_state: Scores; it is not changed.
        batch: The rows.
        temperature: That the tokens were sampled with.
        parts: The micro-batches of this rank; rows in none of any rank's keep zeros.
        pending: Further ones, which go through the reference and a critic of its own backbone
            alone: the update will know their old logprobs.
        with_entropy: Whether the entropy over the vocabulary is asked for.
        gold: Answers to be scored in the policy's pass over each micro-batch.

    """
    names = ["old_logp"]
    names += ["ref_logp"] if train_state.reference is not None else []
    names += ["values"] if train_state.critic is not None else []
    names += ["entropy"] if with_entropy else []
    dtype = torch.promote_types(train_state.policy.model.dtype, torch.float32)
    out = {name: torch.zeros_like(batch.ids_NT, dtype=dtype) for name in names}

    def keep(own: MicroBatch, mask: Tensor, columns: Mapping[str, Tensor]) -> None:
        if own.is_idle:
            return
        for name, values_M in columns.items():
            scattered = values_M.new_zeros(mask.shape).masked_scatter(mask, values_M)
            out[name][own.rows, : mask.shape[1]] = scattered

    for own in parts:
        part = batch.rows(own.rows)
        mask = part.action_mask_NT
        scores = _policy_scores(
            train_state.actor,
            own,
            part,
            gold,
            temperature=temperature,
            entropy="value" if with_entropy else "none",
        )
        keep(own, mask, {"old_logp": scores.tokens.logprobs_M})
        if scores.tokens.entropy_M is not None:
            keep(own, mask, {"entropy": scores.tokens.entropy_M})
        keep(own, mask, _beside_policy(train_state, part, own.tree, scores.hidden_MD, temperature))
    for own in pending:
        part = batch.rows(own.rows)
        mask = part.action_mask_NT
        unknown_M = out["old_logp"].new_full((int(mask.sum()),), torch.nan)
        keep(own, mask, {"old_logp": unknown_M})
        keep(own, mask, _beside_policy(train_state, part, own.tree, None, temperature))
    out = {name: train_state.group.sum(own) for name, own in out.items()}
    signals = Signals(out["old_logp"], out.get("ref_logp"), out.get("values"), out.get("entropy"))
    if not pending:
        return signals
    is_pending_N = torch.zeros_like(batch.is_valid_N)
    for own in pending:
        is_pending_N[own.rows] = True  # also of a rank that is idle: they are another one's
    return replace(signals, is_pending_N=train_state.group.sum(is_pending_N.int()) > 0)


def _policy_scores(
    model: CausalLM | ShardedModel,
    own: MicroBatch,
    part: TokenBatch,
    gold: GoldAnswers | None,
    *,
    temperature: float,
    entropy: EntropyUse,
) -> ActionScores:
    """Score rows by the policy; their gold answers in their tree, or from their keys and values."""
    ids, mask = part.ids_NT, part.action_mask_NT
    score = partial(score_actions, model, ids, mask, temperature=temperature, entropy=entropy)
    if gold is None:
        return score(tree=own.tree)
    model = whole_model(model)
    copies, chunk = gold.copies(own.rows), head_chunk(model)
    if own.tree is None:
        cache = new_kv_cache(model)
        scores = score(cache=cache)
        gold_BJ = gold_logprobs(model, ids, copies, prefix=cache, chunk=chunk)
    else:
        hidden_MD, gold_BJ = hidden_with_gold(model, ids, mask, copies, chunk=chunk)
        scores = score_hidden(
            model, hidden_MD, ids[mask], temperature=temperature, entropy=entropy, tree=own.tree
        )
    gold.keep(own.rows, gold_BJ)
    return scores


def _beside_policy(
    train_state: TrainState,
    part: TokenBatch,
    tree: RowTree | None,
    hidden_MD: Tensor | None,
    temperature: float,
) -> dict[str, Tensor]:
    """Return what reference and critic say of some rows, (M,) each, where the trial has them."""
    ids, mask, columns = part.ids_NT, part.action_mask_NT, {}
    if train_state.reference is not None:
        reference = score_actions(
            train_state.reference, ids, mask, temperature=temperature, tree=tree
        )
        columns["ref_logp"] = reference.tokens.logprobs_M
    if train_state.critic is not None:
        columns["values"] = train_state.critic(ids, mask, hidden_MD, tree)
    return columns
