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
from rltune.trainer.batches.micro_batches import limit_of, padding_share
from rltune.trainer.batches.mini_batches import plan_scoring, plan_update
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
from rltune.trainer.records.measures import Metrics, training_metrics
from rltune.trainer.train_state import TrainState, score_batch
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
    limit = limit_of(train_state.policy, config, train_state.pair_cost)
    plan = plan_update(batch, config, step=step, limit=limit)
    scoring = plan_scoring(batch, plan, config, limit)
    shaping, coef = config.advantage.shaping, kl_coef(controllers, config.loss)
    with timed("score"):
        reader = gold_reader(train_state.policy, batch, episodes, config.attribution)
        signals = score_batch(
            train_state,
            batch,
            temperature=config.rollout.temperature,
            parts=scoring.parts,
            pending=scoring.pending,
            with_entropy=needs_entropy(shaping),
            gold=reader,
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
        metrics |= update(
            train_state, data, config, step=step, kl_coef=coef, on_entropy=on_entropy, plan=plan
        )
    metrics |= rollout_diagnostics(
        signals.old_logp_NT,
        batch.rollout_logprobs_NT,
        batch.action_mask_NT,
        result.credit.weights_NT,
    )
    if not isinstance(train_state.policy.model, RemoteScorer):  # a service pads as it likes
        computed = (*scoring.parts, *(part for mini_batch in plan for part in mini_batch.parts))
        metrics["perf/padding_share"] = padding_share(batch, computed)
    metrics |= {"actor/lr": config.optim.lr}
    if config.loss.use_kl_loss:
        metrics |= {"actor/kl_coef": coef}
    if shaping.sepa.schedule != "none":
        metrics |= {"sepa/lambda": strength}
    controllers = _adapt(controllers, seen | metrics, result, config)
    return StepResult(metrics, controllers, result.credit)


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
