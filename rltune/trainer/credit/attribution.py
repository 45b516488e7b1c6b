"""Credit of single turns: what the estimator gave an episode, divided over its turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rltune.advantages.adca import adca, alpha_at
from rltune.advantages.info_gain import TurnGroupNormalizer, accumulate
from rltune.losses.turn_clip import AdaptiveTurnClipper, clip_scale_metrics
from rltune.maths.turns import broadcast_turns, has_turn
from rltune.policy.load import Policy
from rltune.rollout.episode import Probes
from rltune.rollout.tokens import TokenBatch
from rltune.signals.info_gain import InfoGains, ig_metrics
from rltune.signals.step_flags import gold_flags, rows_to_judge, solver_flags, stack_flags
from rltune.spec.schema.attribution import AdcaConfig, Attribution, InfoGainConfig
from rltune.trainer.batches.micro_batches import Limit
from rltune.trainer.credit.info_gain import GoldReader, information_gain
from rltune.trainer.credit.judging import Flags, Judged
from rltune.types import Episode

AskJudge = Callable[[Sequence[Episode]], Judged]
"""Asks the judge of `attribution.judge: llm` about whole episodes."""


@dataclass(frozen=True, slots=True)
class TurnCredit:
    """Advantages per turn, spread over tokens, and what is worth logging."""

    advantages_NT: Tensor  # one per sampled token
    clip_scale_NT: Tensor | None = None  # factor on the clip bounds; None where it is 1 everywhere
    metrics: dict[str, float] = field(default_factory=dict)  # `ig/*` or `adca/*`


def probes(attribution: Attribution, step: int) -> Probes:
    """Return what must be measured of the environments for the attribution of a step."""
    if attribution.kind == "info_gain":
        return Probes(gold=attribution.mode != "none")
    if attribution.kind == "adca" and verdict_weight(attribution, step) > 0:
        return Probes(
            distance=attribution.judge in ("solver", "gold"), gold=attribution.judge == "gold"
        )
    return Probes()


def verdict_weight(config: AdcaConfig, step: int) -> float:
    """Return what verdicts weigh in a training step; where nothing, none is asked for."""
    if config.first_steps is not None and step > config.first_steps:
        return 0.0
    return alpha_at(
        step - 1,
        alpha=config.alpha,
        alpha_min=config.alpha_min,
        decay_steps=config.alpha_steps,
        kind=config.alpha_schedule,
    )


def rows_to_ask(
    batch: TokenBatch, advantages_N: Tensor, attribution: AdcaConfig, *, step: int
) -> Tensor:
    """Return the rows of a batch that a judge is asked about in a training step, (M,)."""
    asked_N = rows_to_judge(advantages_N, batch.success_N, skip=attribution.skip)
    weight = verdict_weight(attribution, step)
    return (asked_N & batch.is_trained_N & (weight != 0)).nonzero()[:, 0]


def gold_reader(
    policy: Policy, batch: TokenBatch, episodes: Sequence[Episode], attribution: Attribution
) -> GoldReader | None:
    """Return what scores the gold answers of a batch; None without information gain."""
    if not isinstance(attribution, InfoGainConfig) or attribution.mode == "none":
        return None
    return GoldReader(policy, batch, episodes, ig_type=attribution.ig_type)


def by_information_gain(
    batch: TokenBatch,
    gains: InfoGains,
    outcome_N: Tensor,
    attribution: InfoGainConfig,
    *,
    turn_clip_beta: float,
) -> TurnCredit:
    """Return A2TGPO's advantages: the outcome, and the gains of a turn and those after it.

    Args:
        batch: Rows of the step.
        gains: Information gain of their turns.
        outcome_N: What the episodes are compared by.
        attribution: Its mode is not `none`.
        turn_clip_beta: How far a gain widens the clip bounds of its turn.

    Raises:
        ValueError: The attribution's mode is `none`.

    """
    if attribution.mode == "none":
        raise ValueError("attribution info_gain has no mode")
    valid_N, group_N, turn_ids_NT = batch.is_valid_N, batch.group_N, batch.turn_ids_NT
    normalizer = TurnGroupNormalizer(mode=attribution.mode)
    normalised = normalizer(
        outcome_N[valid_N], gains.ig_NK[valid_N], gains.has_ig_NK[valid_N], group_N[valid_N]
    )
    is_turn_NK = has_turn(turn_ids_NT, n_turns=gains.ig_NK.shape[1])
    advantages_NK = torch.zeros_like(gains.ig_NK)
    advantages_NK[valid_N] = accumulate(
        normalised,
        gains.has_ig_NK[valid_N],
        is_turn_NK[valid_N],
        gamma=attribution.gamma,
        ig_coef=attribution.ig_coef,
        is_rescaled=normalizer.is_rescaled,
    )
    ig_hat_NK = torch.zeros_like(gains.ig_NK)
    ig_hat_NK[valid_N] = normalised.ig_NK
    scale_NK = AdaptiveTurnClipper(beta=turn_clip_beta)(ig_hat_NK, gains.has_ig_NK)
    return TurnCredit(
        broadcast_turns(advantages_NK, turn_ids_NT),
        broadcast_turns(scale_NK, turn_ids_NT),
        {
            **ig_metrics(gains.ig_NK, gains.has_ig_NK, group_N),
            **clip_scale_metrics(scale_NK, gains.has_ig_NK),
        },
    )


def by_verdicts(
    policy: Policy,
    batch: TokenBatch,
    advantages_N: Tensor,
    episodes: Sequence[Episode],
    attribution: AdcaConfig,
    *,
    step: int,
    limit: Limit,
    ask: AskJudge,
) -> TurnCredit:
    """Return ADCA's advantages: the outcome, and verdicts on a turn and those after it.

    `advantages_N` is the estimator's advantage of each row: the outcome. `policy` scores gold
    answers for the judge `gold`, and `ask` asks the judge `llm`.
    """
    device, n_turns = advantages_N.device, batch.n_turns
    weight = verdict_weight(attribution, step)
    rows = rows_to_ask(batch, advantages_N, attribution, step=step)
    judged = _judge(
        policy,
        batch.rows(rows),
        episodes,
        attribution.judge,
        limit=limit,
        ask=ask,
    )
    flags: list[Flags] = [None] * len(batch)
    for row, verdict in zip(rows.tolist(), judged.flags, strict=True):
        flags[row] = verdict
    flags_NK, is_judged_N = stack_flags(flags, n_turns=n_turns)
    result = adca(
        flags_NK.to(device),
        is_judged_N.to(device),
        has_turn(batch.turn_ids_NT, n_turns=n_turns),
        batch.rewards_N,
        batch.success_N,
        batch.group_N,
        scheme=attribution.scheme,
        fusion=attribution.fusion,
        alpha=weight,
        fix_base=attribution.fix_base,
        normalize=attribution.normalize,
        scope=attribution.scope,
        length_normalize=attribution.length_normalize,
        outcome_advantage_N=advantages_N,
    )
    metrics = {
        **result.metrics,
        **judged.metrics,
        "adca/asked_count": float(len(rows)),
        "adca/answered_count": float(sum(verdict is not None for verdict in judged.flags)),
    }
    return TurnCredit(broadcast_turns(result.advantages_NK, batch.turn_ids_NT), None, metrics)


def _judge(
    policy: Policy,
    asked: TokenBatch,
    episodes: Sequence[Episode],
    judge: str,
    *,
    limit: Limit,
    ask: AskJudge,
) -> Judged:
    """Return a verdict on each of the rows that are asked about."""
    played = [episodes[row] for row in asked.episode_N.tolist()]
    if not played:
        return Judged([], {})
    if judge == "llm":
        return ask(played)
    distances = [[turn.distance for turn in episode.turns] for episode in played]
    if judge == "solver":
        return Judged([solver_flags(of_turns) for of_turns in distances], {})
    gains = information_gain(policy, asked, episodes, ig_type="prob_diff", limit=limit)
    flags = [
        gold_flags(gained, of_turns, is_success=episode.success)
        for gained, of_turns, episode in zip(
            _gain_lists(gains, played), distances, played, strict=True
        )
    ]
    return Judged(flags, {})


def _gain_lists(gains: InfoGains, episodes: Sequence[Episode]) -> list[list[float | None]]:
    """Return the gain of each turn of each episode, None where it has none."""
    return [
        [
            gain if has else None
            for gain, has in zip(ig_K[: len(e.turns)], has_K[: len(e.turns)], strict=True)
        ]
        for ig_K, has_K, e in zip(
            gains.ig_NK.tolist(), gains.has_ig_NK.tolist(), episodes, strict=True
        )
    ]
