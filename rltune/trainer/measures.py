"""Metrics of one training step, under verl's names where one exists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rltune.maths.masked import masked_mean
from rltune.rollout.tokens import TokenBatch
from rltune.trainer.credit import Credit, FilterResult
from rltune.trainer.learner import Signals
from rltune.types import Episode, StopReason

Metrics = dict[str, Any]


def rollout_metrics(episodes: Sequence[Episode], chosen: FilterResult, *, groups: int) -> Metrics:
    """Return what the episodes of a step were like, before the filter took any away.

    `rollout/invalid_action_rate` is the share of turns with a bad action name or without an answer.
    `rollout/over_limit_actions` counts, per turn, the good names beyond the limits: they are not
    executed and cost nothing.
    """
    rewards_GM = np.array([e.reward for e in episodes]).reshape(groups, -1)
    turns = [turn for episode in episodes for turn in episode.turns]
    lengths = np.array([len(turn.sampled_ids) for turn in turns] or [0])
    cut = sum(turn.stop_reason is StopReason.LENGTH for turn in turns)
    spread = rewards_GM.std(axis=1, ddof=1) if rewards_GM.shape[1] > 1 else np.zeros(groups)
    return {
        "rollout/success_rate": float(np.mean([e.success for e in episodes])),
        "rollout/reward_mean": float(rewards_GM.mean()),
        "rollout/in_group_reward_std": float(spread.mean()),
        "rollout/filter_kept_ratio": chosen.kept_ratio,
        "rollout/filter_zero_count": float(chosen.zero_count),
        "rollout/invalid_action_rate": sum(not t.is_valid for t in turns) / max(1, len(turns)),
        "rollout/over_limit_actions": sum(t.n_over_limit for t in turns) / max(1, len(turns)),
        "rollout/turns": len(turns) / len(episodes),
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "response_length/min": float(lengths.min()),
        "response_length/clip_ratio": cut / max(1, len(turns)),
    }


def gate_line(metrics: Metrics, *, step: int, name: str) -> str:
    """Return a gate in words for the trial's log; there is no speed before the first step."""
    speed = metrics.get("perf/tokens_per_s")
    return f"step {step}: {name} {metrics[name]:.4g}" + (
        "" if speed is None else f", {speed:.0f} tokens/s"
    )


def training_metrics(batch: TokenBatch, signals: Signals, credit: Credit) -> Metrics:
    """Return what the kept rows look like to the trainer, before the update."""
    mask = torch.from_numpy(batch.action_mask_NT).to(signals.old_logp_NT.device)
    rollout_logp = torch.from_numpy(batch.rollout_logprobs_NT).to(mask.device)
    gap = (signals.old_logp_NT - rollout_logp).where(mask, 0)
    metrics = {
        "rollout_corr/logprob_diff_max": gap.abs().max().item(),
        "rollout_corr/kl": -masked_mean(gap, mask).item(),
        **_spread("critic/score", torch.from_numpy(batch.rewards_N[batch.action_mask_NT.any(1)])),
        **_spread("critic/advantages", credit.advantages_NT[mask]),
    }
    if credit.returns_NT is not None and signals.values_NT is not None and mask.any():
        returns, values = credit.returns_NT[mask], signals.values_NT[mask]
        variance = returns.var(correction=0)
        unexplained = (returns - values).var(correction=0) / (variance + 1e-8)
        metrics |= _spread("critic/returns", returns) | _spread("critic/values", values)
        metrics["critic/vf_explained_var"] = 1 - unexplained.item()
    return metrics


def _spread(name: str, values: torch.Tensor) -> Metrics:
    if not len(values):
        return {}
    return {
        f"{name}/mean": values.mean().item(),
        f"{name}/max": values.max().item(),
        f"{name}/min": values.min().item(),
    }
