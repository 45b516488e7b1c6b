"""Statistics of the rollouts of one prompt, given back per rollout.

A group is a set of equal integers in `group_N`; the integers need not be dense or sorted. The
caller makes them from (env, task seed): two tasks with the same text stay two groups.
"""

import torch
from torch import Tensor

from rltune.maths.checks import require_same_shape


def _index(group_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return the dense group index of each member and the number of members of each group."""
    if group_N.ndim != 1 or group_N.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"group_N has shape {tuple(group_N.shape)} and dtype {group_N.dtype}; "
            "expected one integer per trajectory (int32 or int64)."
        )
    _, index_N, count_G = torch.unique(group_N, return_inverse=True, return_counts=True)
    return index_N, count_G


def _require_values(values_N: Tensor, group_N: Tensor) -> None:
    require_same_shape(ndim=1, values_N=values_N, group_N=group_N)
    if not values_N.is_floating_point():
        raise ValueError(f"values_N has dtype {values_N.dtype}; expected a floating dtype.")


def group_sizes(group_N: Tensor) -> Tensor:
    """Return, for each member, how many members its group has (int64)."""
    index_N, count_G = _index(group_N)
    return count_G[index_N]


def group_mean(values_N: Tensor, group_N: Tensor) -> Tensor:
    """Return, for each member, the mean of its group.

    mean_g = min_g + sum_{i in g} (x_i - min_g) / n_g

    Counting from the minimum makes the mean of equal values exactly that value: the plain mean of
    three times 0.1 is not 0.1, and a group without spread would get a small advantage.

    Raises:
        ValueError: The shapes differ, the groups are not integers or the values not floating.

    """
    _require_values(values_N, group_N)
    index_N, count_G = _index(group_N)
    start_G = values_N.new_full(count_G.shape, torch.inf)
    base_N = start_G.scatter_reduce(0, index_N, values_N, "amin")[index_N]
    total_G = torch.zeros_like(start_G).index_add(0, index_N, values_N - base_N)
    return base_N + (total_G / count_G)[index_N]


def group_std(values_N: Tensor, group_N: Tensor, *, ddof: int) -> Tensor:
    """Return, for each member, the standard deviation of its group.

    std_g = sqrt(sum_{i in g} (x_i - mean_g)^2 / max(n_g - ddof, 1))

    A group of one member, and a group of equal values, has exactly 0.

    Args:
        values_N: One value per trajectory.
        group_N: Group of each trajectory.
        ddof: 1 for the sample (unbiased), 0 for the population standard deviation.

    Raises:
        ValueError: `ddof` is neither 0 nor 1, or as in `group_mean`.

    """
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}; choose 0 (population) or 1 (sample).")
    centred_N = values_N - group_mean(values_N, group_N)
    index_N, count_G = _index(group_N)
    start_G = values_N.new_zeros(count_G.shape)
    squares_G = start_G.index_add(0, index_N, centred_N.square())
    return (squares_G / (count_G - ddof).clamp(min=1)).sqrt()[index_N]
