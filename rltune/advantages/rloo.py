"""RLOO: REINFORCE with the mean of the other rollouts as baseline (arXiv 2402.14740).

A_i = R_i - mean_{j in g, j != i} R_j = n / (n - 1) (R_i - mean_g)
"""

from torch import Tensor

from rltune.advantages.grpo import grpo_center
from rltune.maths.groups import group_sizes


def rloo(rewards_N: Tensor, group_N: Tensor, *, singleton: float = 0.0) -> Tensor:
    """Return one advantage per trajectory; exactly 0 in a group without spread.

    Differs from verl, whose loop gives the only member of a group A = R and whose vectorised form
    gives 0. Here it gets `singleton`.

    Args:
        rewards_N: Episode rewards.
        group_N: Group of each trajectory: equal integers share a task.
        singleton: Advantage of a trajectory that is alone in its group.

    Raises:
        ValueError: Shapes differ, groups are not integers, or a reward is not finite.

    """
    n_N = group_sizes(group_N)
    centred_N = grpo_center(rewards_N, group_N)
    return (centred_N * n_N / (n_N - 1)).where(n_N > 1, singleton)
