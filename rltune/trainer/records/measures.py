"""Metrics of one training step, under verl's names where one exists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from rltune.gate import GateResult, wilson_interval
from rltune.rollout.tokens import TokenBatch
from rltune.trainer.credit.estimate import Credit
from rltune.trainer.filtering import FilterResult
from rltune.trainer.records.outcomes import cut_shares, mean, outcome_metrics, valid
from rltune.trainer.train_state import Signals
from rltune.types import Episode

Metrics = dict[str, Any]


def rollout_metrics(
    episodes: Sequence[Episode],
    chosen: FilterResult,
    *,
    groups: int,
    auxiliary_names: Sequence[str],
) -> Metrics:
    """Return what the episodes of a step were like, before the filter took any away.

    Those with a fault are in no rate and no mean; the response lengths are those of all.
    `rollout/invalid_action_rate` is the share of turns with a bad action name or without an answer.
    `rollout/over_limit_actions` counts, per turn, the good names beyond the limits: they are not
    executed and cost nothing.
    """
    turns = [turn for episode in episodes for turn in episode.turns]
    counted = [turn for episode in valid(episodes) for turn in episode.turns]
    lengths = np.array([len(turn.sampled_ids) for turn in turns] or [0])
    cut = cut_shares(episodes)
    return {
        **outcome_metrics(episodes, prefix="rollout", auxiliary_names=auxiliary_names),
        "rollout/in_group_reward_std": _spread_in_groups(episodes, groups),
        "rollout/filter_kept_ratio": chosen.kept_ratio,
        "rollout/filter_zero_count": float(chosen.zero_count),
        "rollout/over_limit_actions": sum(t.n_over_limit for t in counted) / max(1, len(counted)),
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "response_length/min": float(lengths.min()),
        "response_length/clip_ratio": cut["clip_ratio"],
        "rollout/context_clip_ratio": cut["context_clip_ratio"],
        "rollout/out_of_context_ratio": cut["out_of_context_ratio"],
    }


def _spread_in_groups(episodes: Sequence[Episode], groups: int) -> float:
    """Return the mean over groups of the std of rewards; 0 where a group is one episode.

    A group that faults left fewer than two rewards of says nothing; NaN where all are such.
    """
    size = len(episodes) // groups
    if size < 2:
        return 0.0
    played = (valid(episodes[start : start + size]) for start in range(0, len(episodes), size))
    rewards = [[episode.reward for episode in group] for group in played]
    return mean(float(np.std(values, ddof=1)) for values in rewards if len(values) > 1)


def gate_line(metrics: Metrics, gate: GateResult, *, name: str) -> str:
    """Return a gate in words for the trial's log; there is no speed before the first step.

    A success rate comes with its number of tasks and its 95 % Wilson interval over them; faults
    are told with any metric.
    """
    line = f"step {gate.step}: {name} {metrics[name]:.4g}"
    if name == "heldout/success_rate":
        low, high = wilson_interval(gate.successes, gate.n)
        line += f" [{low:.3g}, {high:.3g}] of {gate.n} tasks"
    if gate.lost:
        line += f" ({gate.n} of {gate.asked} scored, {gate.lost} had a fault)"
    speed = metrics.get("perf/tokens_per_s")
    return line if speed is None else f"{line}, {speed:.0f} tokens/s"


def training_metrics(batch: TokenBatch, signals: Signals, credit: Credit) -> Metrics:
    """Return what the kept rows look like to the trainer, before the update."""
    mask = batch.action_mask_NT
    metrics = {
        **_spread("critic/score", batch.rewards_N[batch.is_trained_N]),
        **_spread("critic/advantages", credit.advantages_NT[mask]),
    }
    if credit.returns_NT is not None and signals.values_NT is not None and mask.any():
        returns, values = credit.returns_NT[mask], signals.values_NT[mask]
        variance = returns.var(correction=0)
        unexplained = (returns - values).var(correction=0) / (variance + 1e-8)
        metrics |= _spread("critic/returns", returns) | _spread("critic/values", values)
        metrics["critic/vf_explained_var"] = 1 - unexplained.item()
    return metrics


def _spread(name: str, values: Tensor) -> Metrics:
    if not len(values):
        return {}
    return {
        f"{name}/mean": values.mean().item(),
        f"{name}/max": values.max().item(),
        f"{name}/min": values.min().item(),
    }
