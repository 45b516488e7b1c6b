"""Rates and means over episodes, without those that had a fault; and the faults, in words."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rltune.gate import MACRO, SET_MEASURES, set_metric
from rltune.types import Episode, StopReason
from rltune_envs.base import FailureClass

FAILURES = tuple(
    name for name in FailureClass if name not in (FailureClass.NONE, FailureClass.FAULT)
)
"""The ways to fail of an episode without a fault."""


def valid(episodes: Iterable[Episode]) -> list[Episode]:
    """Return the episodes that count: those without a fault."""
    return [episode for episode in episodes if not episode.fault]


def mean(values: Iterable[float]) -> float:
    """Return the mean; NaN of nothing, which no gate chooses."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else math.nan


def outcome_metrics(
    episodes: Sequence[Episode], *, prefix: str, auxiliary_names: Sequence[str]
) -> dict[str, float]:
    """Return success, reward, turns, faults and the env's own measures of a set of episodes.

    All but `fault_count` is over the episodes without a fault. An episode that the context cut
    short has none of the env's measures: each is 0 there, as its success is.
    """
    counted = valid(episodes)
    turns = [turn for episode in counted for turn in episode.turns]
    measures = {
        "success_rate": mean(episode.success for episode in counted),
        "reward_mean": mean(episode.reward for episode in counted),
        "turns": mean(len(episode.turns) for episode in counted),
        "invalid_action_rate": sum(not turn.is_valid for turn in turns) / max(1, len(turns)),
        "fault_count": float(len(episodes) - len(counted)),
        **{
            name: mean(episode.auxiliary.get(name, 0.0) for episode in counted)
            for name in auxiliary_names
        },
    }
    return {f"{prefix}/{name}": value for name, value in measures.items()}


def set_metrics(
    episodes: Sequence[Episode],
    sets: Sequence[str],
    *,
    prefix: str,
    auxiliary_names: Sequence[str],
) -> dict[str, float]:
    """Return success, EM and F1 of each named set, and their means over the sets (`macro`).

    In a mean over the sets each counts the same, whatever its size. As elsewhere, episodes with a
    fault do not count; a set without any other has NaN, and so has the mean.

    Args:
        episodes: One for each task.
        sets: The set of each task; empty without named sets.
        prefix: Of the names, `heldout`.
        auxiliary_names: The env's own measures; EM and F1 are told where it has them.

    """
    if not sets:
        return {}
    chosen = [name for name in SET_MEASURES if name in auxiliary_names]
    out: dict[str, float] = {}
    for one in dict.fromkeys(sets):
        mine = [episode for episode, name in zip(episodes, sets, strict=True) if name == one]
        measured = outcome_metrics(mine, prefix="", auxiliary_names=chosen)
        out |= {f"{one}/{name}": measured[f"/{name}"] for name in ("success_rate", *chosen)}
    names = tuple(dict.fromkeys(sets))
    for measure in ("success_rate", *chosen):
        out[f"{MACRO}/{measure}"] = mean(out[f"{one}/{measure}"] for one in names)
    return {f"{prefix}/{name}": value for name, value in out.items()}


def is_measured(metrics: Mapping[str, float], metric: str, counted: Sequence[Episode]) -> bool:
    """Return whether a gate tells checkpoints apart.

    Without an episode that counts it does not; nor does a metric of named sets where faults took a
    whole set.
    """
    is_lost = set_metric(metric) is not None and math.isnan(metrics[metric])
    return bool(counted) and not is_lost


def cut_shares(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the shares of what the token limits cut, of all episodes; 0 where there was no turn.

    `clip_ratio`: responses cut by `rollout.max_response_tokens`. `context_clip_ratio`: responses
    cut by `rollout.max_context` before that. `out_of_context_ratio`: episodes that ended because
    the context left no room for another response.
    """
    reasons = [turn.stop_reason for episode in episodes for turn in episode.turns]
    n_ended = sum(episode.is_out_of_context for episode in episodes)
    return {
        "clip_ratio": reasons.count(StopReason.LENGTH) / max(1, len(reasons)),
        "context_clip_ratio": reasons.count(StopReason.CONTEXT_CUT) / max(1, len(reasons)),
        "out_of_context_ratio": n_ended / max(1, len(episodes)),
    }


def failure_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the share of each way to fail, over the episodes without a fault."""
    counted = valid(episodes)
    return {
        f"heldout/failure/{name.value}": mean(e.failure_class == name.value for e in counted)
        for name in FAILURES
    }


def fault_line(episodes: Sequence[Episode], *, where: str) -> str:
    """Return the faults of a set of episodes in one line; empty without any. `where`: `step 3`."""
    kinds = Counter(episode.fault.partition(":")[0] for episode in episodes if episode.fault)
    if not kinds:
        return ""
    named = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
    example = next(episode.fault for episode in episodes if episode.fault)
    return (
        f"{where}: {kinds.total()} of {len(episodes)} episodes had a fault, are not trained on and "
        f"are in no rate: {named}; the first: {example}"
    )
