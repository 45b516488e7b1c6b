"""A custom advantage estimator: any function from outcomes and groups to advantages.

In a config: `advantage: examples.my_advantage:rank`, or with arguments as in my_advantage.yaml.
"""

import torch
from torch import Tensor


def rank(outcome_N: Tensor, group_N: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return each rollout's rank among its prompt's, spread evenly from -scale to scale.

    Equal outcomes share the mean of their ranks, so a group without spread learns nothing.

    Args:
        outcome_N: Reward or success of each rollout (`advantage.outcome`).
        group_N: Prompt of each rollout: equal integers share one.
        scale: Advantage of a single best rollout.

    """
    is_same = group_N[:, None] == group_N
    below = (is_same & (outcome_N[:, None] > outcome_N)).sum(dim=1)
    above = (is_same & (outcome_N[:, None] < outcome_N)).sum(dim=1)
    others = torch.clamp(is_same.sum(dim=1) - 1, min=1)
    return scale * (below - above) / others
