"""MaxRL: maximum-likelihood group advantages (arXiv 2602.02710).

A_i = (R_i - mean_g) / (mean_g + eps),    and 0 when mean_g <= eps
"""

from torch import Tensor

from rltune.advantages.grpo import grpo_center
from rltune.maths.groups import group_mean, group_sizes


def maxrl(
    rewards_N: Tensor, group_N: Tensor, *, eps: float = 1e-6, singleton: float = 0.0
) -> Tensor:
    """Return one advantage per trajectory; exactly 0 in a group without spread.

    With 0/1 rewards and s of n solved, a success gets (n - s) / s and a failure -1: the rarer the
    success, the more it counts.

    Differs from textpolicy, which takes one mean over the whole batch when prompts are not given,
    and whose pure-Python form accepts negative rewards and returns the wrong sign for some.

    Args:
        rewards_N: Episode rewards, none negative; best the success, 0 or 1.
        group_N: Group of each trajectory: equal integers share a task.
        eps: Added to the mean; a group whose mean is at or below it carries no signal.
        singleton: Advantage of a trajectory that is alone in its group.

    Raises:
        ValueError: A reward is negative, where the estimator is undefined, shapes differ, groups
            are not integers, a reward is not finite, or `eps` is negative.

    """
    if not eps >= 0:
        raise ValueError(f"eps is {eps!r}; it must be 0 or more.")
    centred_N = grpo_center(rewards_N, group_N)
    if (rewards_N < 0).any():
        row = int((rewards_N < 0).nonzero()[0])
        raise ValueError(
            f"rewards_N[{row}] is {rewards_N[row].item():g}; MaxRL needs rewards >= 0. "
            "Pass the success (0 or 1) instead of a reward with penalties."
        )
    mean_N = group_mean(rewards_N, group_N)
    advantages_N = (centred_N / (mean_N + eps)).where(mean_N > eps, 0)
    return advantages_N.where(group_sizes(group_N) > 1, singleton)
