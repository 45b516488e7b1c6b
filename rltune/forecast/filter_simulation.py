"""Filters of a sweep on simulated batches: conditions that keep the same groups are one condition.

A published sweep has three such points: with rewards of 0 and 1 and eight groups, top_p of 0.98,
0.95 and 0.9 over a softmax all keep every group that has any spread.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rltune.rollout.filter import SPREADS, group_scores, select_groups
from rltune.spec.keys import typed
from rltune.spec.schema.trial import TrialConfig

SIMULATED_STEPS = 100
_REWARDS = {"sokoban": (-1.0, 10.4)}  # of a failure and a success; elsewhere 0 and 1


def same_selection(
    configs: Mapping[str, Mapping[str, Any]], *, steps: int = SIMULATED_STEPS, seed: int = 0
) -> list[tuple[str, ...]]:
    """Return the sets of two or more conditions that keep the same groups in all simulated steps.

    A simulated step has the sweep's groups and group sizes. Each prompt has a success rate drawn
    evenly from [0, 1], and its rollouts succeed independently with it. Conditions whose filter
    drops nothing or does not look at rewards, or which play other groups, are not compared.

    Args:
        configs: Condition label -> resolved config.
        steps: Simulated steps.
        seed: Of the draws; all conditions see the same ones.

    """
    kept: dict[tuple[object, ...], list[str]] = {}
    for label, plain in configs.items():
        config = typed(plain)
        rollout = config.rollout
        if config.rollout_filter.metric not in SPREADS or rollout.group_size < 2:
            continue
        shape = (steps, rollout.groups, rollout.group_size)
        kept.setdefault((shape, _selections(config, shape, seed)), []).append(label)
    return [tuple(labels) for labels in kept.values() if len(labels) > 1]


def _selections(config: TrialConfig, shape: tuple[int, int, int], seed: int) -> bytes:
    """Return which groups a filter keeps, over all simulated steps."""
    rng = np.random.default_rng(seed)
    rates = rng.random(shape[:2])
    is_success = rng.random(shape) < rates[..., None]
    kind = config.env.kind if config.reward is None else ""
    failure, success = _REWARDS.get(kind, (0.0, 1.0))
    rewards = np.where(is_success, success, failure)
    keys = config.rollout_filter
    selected = [
        select_groups(
            group_scores(rewards_GM, metric=keys.metric, ddof=keys.ddof),
            strategy=keys.strategy,
            value=keys.value,
            mode=keys.mode if keys.strategy == "top_p" else "softmax",
            kind=keys.type,
            include_zero=keys.include_zero,
        )
        for rewards_GM in rewards
    ]
    return np.packbits(np.array(selected)).tobytes()
