"""The credit of a step, stage by stage: estimator, turns, tokens, correction, scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from rltune.losses.correction import rollout_weights
from rltune.policy.load import Policy
from rltune.rollout.tokens import TokenBatch
from rltune.signals.info_gain import InfoGains
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.micro_batches import limit_of
from rltune.trainer.credit.attribution import AskJudge, by_information_gain, by_verdicts
from rltune.trainer.credit.estimate import Credit, episode_advantages, estimate, outcome_of
from rltune.trainer.credit.shaping import shape
from rltune.trainer.train_state import Signals
from rltune.types import Episode


@dataclass(frozen=True, slots=True)
class CreditResult:
    """The credit of a step."""

    credit: Credit  # what the objective learns from
    metrics: dict[str, float]  # of the stages that are on
    # variance of the execution tokens' signal, for SEPA; None where it is off
    exec_variance: float | None = None


def assign_credit(
    policy: Policy,
    batch: TokenBatch,
    signals: Signals,
    episodes: Sequence[Episode],
    config: TrialConfig,
    *,
    step: int,
    sepa_lambda: float,
    scale: float,
    ask: AskJudge,
    gains: InfoGains | None = None,
) -> CreditResult:
    """Return advantages, clip scales and weights of all sampled tokens.

    Args:
        policy: Scores gold answers for a judge, and decodes text for planning tokens.
        batch: Rows to train on.
        signals: Of the same rows.
        episodes: All episodes of the step; `batch.episode_N` points to them.
        config: Names the stages.
        step: Training step, from 1.
        sepa_lambda: Strength of SEPA's pooling in this step.
        scale: Factor on all advantages, from the filter.
        ask: Asks the judge `llm`.
        gains: Information gain of the turns; None where no attribution uses it.

    """
    credit, metrics = _attribute(
        policy, batch, signals, episodes, config, step=step, ask=ask, gains=gains
    )
    shaped = shape(
        policy,
        credit.advantages_NT.where(batch.action_mask_NT, 0),
        batch,
        signals,
        config.advantage.shaping,
        sepa_lambda=sepa_lambda,
    )
    weights_NT = _correct(batch, signals, config)
    return CreditResult(
        replace(credit, advantages_NT=shaped.advantages_NT * scale, weights_NT=weights_NT),
        {**metrics, **shaped.metrics},
        shaped.exec_variance,
    )


def _attribute(
    policy: Policy,
    batch: TokenBatch,
    signals: Signals,
    episodes: Sequence[Episode],
    config: TrialConfig,
    *,
    step: int,
    ask: AskJudge,
    gains: InfoGains | None,
) -> tuple[Credit, dict[str, float]]:
    """Return the credit of turns where an attribution is on, else the estimator's, and metrics."""
    attribution = config.attribution
    if attribution.kind == "info_gain" and attribution.mode != "none":
        if gains is None:
            raise ValueError("attribution info_gain needs the gains of the turns")
        outcome_N = outcome_of(batch, config.advantage)
        beta = config.loss.turn_clip_beta if config.loss.kind == "turn" else 0.0
        turned = by_information_gain(batch, gains, outcome_N, attribution, turn_clip_beta=beta)
    elif attribution.kind == "adca":
        advantages_N = episode_advantages(batch, config.advantage)
        turned = by_verdicts(
            policy,
            batch,
            advantages_N,
            episodes,
            attribution,
            step=step,
            limit=limit_of(policy, config),
            ask=ask,
        )
    else:
        return estimate(batch, signals, config.advantage), {}
    return Credit(turned.advantages_NT, clip_scale_NT=turned.clip_scale_NT), turned.metrics


def _correct(batch: TokenBatch, signals: Signals, config: TrialConfig) -> Tensor | None:
    """Return the weights against the engine's logprobs; None without a correction."""
    correction = config.rollout_correction
    rollout_NT, mask_NT = batch.rollout_logprobs_NT, batch.action_mask_NT
    weights = partial(rollout_weights, signals.old_logp_NT, rollout_NT, mask_NT)
    if correction.kind == "tis":
        return weights(kind="tis", cap=correction.cap)
    if correction.kind == "icepop":
        return weights(kind="icepop", band=(correction.band_low, correction.band_high))
    return None
