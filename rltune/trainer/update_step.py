"""The update of a step: score, credit, update; then what adapts sees the step."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from torch import Tensor

from rltune.losses.correction import rollout_diagnostics
from rltune.remote.model import RemoteScorer
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.dealing import Share
from rltune.trainer.batches.micro_batches import MicroBatch, limit_of, padding_share
from rltune.trainer.batches.mini_batches import MiniBatchPlan, plan_scoring, plan_update
from rltune.trainer.controllers import (
    Controllers,
    Spread,
    kl_after,
    kl_coef,
    sepa_after,
    sepa_strength,
    spread_after,
)
from rltune.trainer.credit.attribution import AskJudge, gold_reader
from rltune.trainer.credit.estimate import Credit
from rltune.trainer.credit.shaping import needs_entropy
from rltune.trainer.credit.stages import CreditResult, assign_credit
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.ranks.tensors import take_over
from rltune.trainer.records.measures import Metrics, training_metrics
from rltune.trainer.train_state import (
    GoldAnswers,
    Signals,
    TrainState,
    score_batch,
)
from rltune.types import Episode


@dataclass(frozen=True, slots=True)
class StepResult:
    """Results of the update on one batch, besides the weights."""

    metrics: Metrics  # of the batch, the credit and the update
    controllers: Controllers  # state of everything that adapts, after the step
    credit: Credit  # what the objective learned from


def update_step(
    train_state: TrainState,
    batch: TokenBatch,
    episodes: Sequence[Episode],
    config: TrialConfig,
    controllers: Controllers,
    seen: Metrics,
    *,
    step: int,
    scale: float,
    ask: AskJudge,
    timed: Callable[[str], AbstractContextManager[None]],
    on_entropy: Callable[[Tensor], None] | None = None,
) -> StepResult:
    """Train on one batch.

    Args:
        train_state: Trained in place.
        batch: Rows to train on.
        episodes: All episodes of the step.
        config: Of the trial.
        controllers: State before the step.
        seen: Metrics of the rollouts.
        step: Training step, from 1.
        scale: Factor on the advantages, from the filter.
        ask: Asks the judge `llm`.
        timed: Counts the time of a part.
        on_entropy: Called with the entropy of each micro-batch's tokens, in nats.

    """
    shaping, everywhere = config.advantage.shaping, train_state.group.everywhere
    coef = kl_coef(controllers, config.loss)
    with timed("score"):
        reader = gold_reader(train_state.policy, batch, episodes, config.attribution)
        signals, scored, plan = everywhere(
            f"scoring of step {step}", _score, train_state, batch, config, step=step, gold=reader
        )
    strength = sepa_strength(controllers.sepa, shaping.sepa)
    with timed("credit"):
        result = assign_credit(
            train_state.policy,
            batch,
            signals,
            episodes,
            config,
            step=step,
            sepa_lambda=strength,
            scale=scale,
            ask=ask,
            gains=reader.gains() if reader else None,
        )
    metrics = training_metrics(batch, signals, result.credit) | result.metrics
    with timed("update"):
        data = MiniBatch(batch, signals, result.credit)
        made, entropies = everywhere(
            f"update of step {step}",
            _update,
            train_state,
            data,
            config,
            step=step,
            kl_coef=coef,
            is_shown=on_entropy is not None,
            plan=plan if train_state.group.size == 1 else None,  # each rank makes its own
        )
    metrics |= made
    if on_entropy is not None:
        for entropy_M in entropies:
            on_entropy(entropy_M)
    metrics |= rollout_diagnostics(
        signals.old_logp_NT,
        batch.rollout_logprobs_NT,
        batch.action_mask_NT,
        result.credit.weights_NT,
    )
    if not isinstance(train_state.policy.model, RemoteScorer):  # a service pads as it likes
        computed = (*scored, *(part for mini_batch in plan for part in mini_batch.parts))
        metrics["perf/padding_share"] = padding_share(batch, computed)
    metrics |= {"actor/lr": config.optim.lr}
    if config.loss.use_kl_loss:
        metrics |= {"actor/kl_coef": coef}
    if shaping.sepa.schedule != "none":
        metrics |= {"sepa/lambda": strength}
    controllers = _adapt(controllers, seen | metrics, result, config)
    return StepResult(metrics, controllers, result.credit)


def _score(
    train_state: TrainState,
    batch: TokenBatch,
    config: TrialConfig,
    *,
    step: int,
    gold: GoldAnswers | None,
) -> tuple[Signals, Sequence[MicroBatch], tuple[MiniBatchPlan, ...]]:
    """Return the scores of a batch, and the passes of this rank in scoring and in the update."""
    share = Share(train_state.group.rank, train_state.group.size)
    limit = limit_of(train_state.policy, config, train_state.pair_cost)
    plan = plan_update(batch, config, step=step, limit=limit, share=share)
    scoring = plan_scoring(batch, plan, config, limit, share)
    signals = score_batch(
        train_state,
        batch,
        temperature=config.rollout.temperature,
        parts=scoring.parts,
        pending=scoring.pending,
        with_entropy=needs_entropy(config.advantage.shaping),
        gold=gold,
    )
    return signals, scoring.parts, plan


def _update(
    train_state: TrainState,
    data: MiniBatch,
    config: TrialConfig,
    *,
    step: int,
    kl_coef: float,
    is_shown: bool,
    plan: tuple[MiniBatchPlan, ...] | None,
) -> tuple[Metrics, list[Tensor]]:
    """Train on one batch; return the metrics and, to be shown, the entropies of all passes."""
    entropies: list[Tensor] = []
    metrics = update(
        train_state,
        data,
        config,
        step=step,
        kl_coef=kl_coef,
        on_entropy=entropies.append if is_shown else None,
        plan=plan,
    )
    take_over(train_state)
    return metrics, train_state.group.joined(entropies)


def _adapt(
    before: Controllers, metrics: Metrics, result: CreditResult, config: TrialConfig
) -> Controllers:
    """Return the state of what adapts, after it has seen the step."""
    return Controllers(
        kl=kl_after(
            before,
            metrics.get("actor/kl_loss"),
            config=config.loss,
            rollouts=config.rollout.groups * config.rollout.group_size,
        ),
        sepa=sepa_after(
            before.sepa,
            config.advantage.shaping.sepa,
            variance=result.exec_variance,
            success_rate=metrics["rollout/success_rate"],
            n_steps=int(metrics["budget/optimizer_steps"]),
        ),
        spread=_spread(before, metrics, config),
    )


def without_batch(before: Controllers, seen: Metrics, config: TrialConfig) -> Controllers:
    """Return the state after a step whose filter left nothing to train on.

    Its rewards and successes were seen all the same; all else belongs to a batch.
    """
    sepa = sepa_after(
        before.sepa,
        config.advantage.shaping.sepa,
        variance=None,
        success_rate=seen["rollout/success_rate"],
        n_steps=0,
    )
    return replace(before, sepa=sepa, spread=_spread(before, seen, config))


def _spread(before: Controllers, metrics: Metrics, config: TrialConfig) -> Spread:
    """Return the spread's state; a step says nothing where no group has two that count."""
    std = metrics["rollout/in_group_reward_std"]
    is_unknown = math.isnan(std) or math.isnan(metrics["rollout/success_rate"])
    if config.rollout.group_size < 2 or is_unknown:
        return before.spread
    return spread_after(before.spread, std, share=config.early_stop.reward_std_share)
