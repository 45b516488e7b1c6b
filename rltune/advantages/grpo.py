"""GRPO: group-relative advantages (arXiv 2402.03300), and Dr.GRPO (arXiv 2503.20783).

A_i = (R_i - mean_g) / (std_g + eps);  Dr.GRPO, `grpo_center`: A_i = R_i - mean_g
"""

from torch import Tensor

from rltune.maths.checks import require_mask
from rltune.maths.groups import group_mean, group_sizes, group_std


def grpo(
    rewards_N: Tensor,
    group_N: Tensor,
    *,
    normalize_std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    min_std: float = 0.0,
    singleton: float = 0.0,
) -> Tensor:
    """Return one advantage per trajectory; exactly 0 in a group without spread.

    Differs from verl, where the only member of a group gets A = R: a baseline that is silently
    missing. Here it gets `singleton`.

    Args:
        rewards_N: Episode rewards.
        group_N: Group of each trajectory: equal integers share a task.
        normalize_std: Divide by the group's standard deviation; False gives Dr.GRPO.
        ddof: 1 for the sample standard deviation (GRPO), 0 for the population's (A2TGPO, ADCA and
            reward records).
        eps: Added to the standard deviation.
        min_std: A group whose standard deviation is at or below this is centred only, so that a
            spread of rounding noise is not blown up to 1.
        singleton: Advantage of a trajectory that is alone in its group.

    Raises:
        ValueError: Shapes differ, groups are not integers, a reward is not finite, `ddof` is
            neither 0 nor 1, or `eps` or `min_std` is negative.

    """
    for name, number in (("eps", eps), ("min_std", min_std)):
        if not number >= 0:
            raise ValueError(f"{name} is {number!r}; it must be 0 or more.")
    advantages_N = grpo_center(rewards_N, group_N)
    if normalize_std:
        std_N = group_std(rewards_N, group_N, ddof=ddof)
        advantages_N = advantages_N / (std_N + eps).where(std_N > min_std, 1)
    return advantages_N.where(group_sizes(group_N) > 1, singleton)


def grpo_center(rewards_N: Tensor, group_N: Tensor, *, singleton: float = 0.0) -> Tensor:
    """Return each reward minus its group's mean: textpolicy's baseline, and Dr.GRPO.

    A_i = R_i - mean_g

    Args:
        rewards_N: Episode rewards.
        group_N: Group of each trajectory: equal integers share a task.
        singleton: Advantage of a trajectory that is alone in its group.

    Raises:
        ValueError: Shapes differ, groups are not integers, or a reward is not finite.

    """
    if not rewards_N.isfinite().all():
        bad = (~rewards_N.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"rewards_N{bad} is not finite; mask the trajectory out before this.")
    centred_N = rewards_N - group_mean(rewards_N, group_N)
    return centred_N.where(group_sizes(group_N) > 1, singleton)


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
