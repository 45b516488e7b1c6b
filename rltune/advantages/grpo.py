"""GRPO: group-relative advantages (arXiv 2402.03300), and Dr.GRPO (arXiv 2503.20783).

A_i = (R_i - mean_g) / (std_g + eps),  std with ddof 1;  Dr.GRPO: A_i = R_i - mean_g
"""

from torch import Tensor

from rltune.maths.checks import require_mask
from rltune.maths.groups import group_mean, group_sizes, group_std


def grpo(
    rewards_N: Tensor,
    group_N: Tensor,
    *,
    normalize_std: bool = True,
    eps: float = 1e-6,
    singleton: float = 0.0,
) -> Tensor:
    """Return one advantage per trajectory; exactly 0 in a group without spread.

    Differs from verl, where the only member of a group gets A = R: a baseline that is silently
    missing. Here it gets `singleton`.

    Args:
        rewards_N: Episode rewards.
        group_N: Group of each trajectory: equal integers share a task.
        normalize_std: Divide by the group's sample standard deviation; False gives Dr.GRPO.
        eps: Added to the standard deviation.
        singleton: Advantage of a trajectory that is alone in its group.

    Raises:
        ValueError: Shapes differ, groups are not integers, or a reward is not finite.

    """
    if not rewards_N.isfinite().all():
        bad = (~rewards_N.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"rewards_N{bad} is not finite; mask the trajectory out before this.")
    advantages_N = rewards_N - group_mean(rewards_N, group_N)
    if normalize_std:
        advantages_N = advantages_N / (group_std(rewards_N, group_N, ddof=1) + eps)
    return advantages_N.where(group_sizes(group_N) > 1, singleton)


def broadcast(advantages_N: Tensor, mask_NT: Tensor) -> Tensor:
    """Return each trajectory's advantage on all its sampled tokens, and 0 elsewhere.

    Shapes: `(N,)` and `(N, T)` give `(N, T)`.

    Raises:
        ValueError: The number of rows differs, or the mask is not a boolean matrix.

    """
    require_mask(mask_NT, name="mask_NT")
    if advantages_N.ndim != 1 or mask_NT.ndim != 2 or len(advantages_N) != len(mask_NT):
        raise ValueError(
            f"shapes do not fit: advantages_N {tuple(advantages_N.shape)}, "
            f"mask_NT {tuple(mask_NT.shape)}. Expected (N,) and (N, T)."
        )
    return advantages_N[:, None].expand(mask_NT.shape).where(mask_NT, 0)
