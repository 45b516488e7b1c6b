"""GTPO: uncertain tokens get more of the advantage (arXiv 2508.04349, as textpolicy has it).

w_t = max(0, 1 + beta (H_t / mean H - 1)),    A'_t = A_t w_t
"""

import math

import torch
from torch import Tensor

from rltune.advantages.scopes import scope_mean
from rltune.maths.checks import at_least_float32, require_mask, require_same_shape


def gtpo(
    advantages_NT: Tensor,
    signal_NT: Tensor,
    mask_NT: Tensor,
    *,
    beta: float,
    scope: str = "completion",
    eps: float = 1e-8,
    floor: float = 1e-7,
) -> Tensor:
    """Return the advantages times their tokens' weights, (N, T); 0 outside the mask.

    The weights never change a sign, and their mean is 1 unless one is cut off at 0. Where the mean
    signal is below `floor` there is nothing to weigh by, and the advantages stay as they are.

    This is textpolicy's multiplicative form. The paper's own form adds rewards per position and
    z-scores the tokens of successes and failures apart. Differs from textpolicy: a negative `beta`
    and a signal that is not finite are refused.

    Args:
        advantages_NT: One per sampled token.
        signal_NT: Surprisal or entropy of each sampled token, in nats, after SEPA where it is on;
            detached here.
        mask_NT: True on sampled tokens.
        beta: Strength; 0 switches the stage off.
        scope: What the mean is taken over: an episode's sampled tokens (`completion`, as
            textpolicy's) or all of the `batch` (as its MLX version).
        eps: Added to the mean.
        floor: Mean signal below which the weights are 1.

    Raises:
        ValueError: Shapes differ, the mask is not boolean, `beta` is negative or not finite, the
            scope is unknown, or a signal on a sampled token is not finite.

    """
    require_mask(mask_NT, name="mask_NT")
    require_same_shape(ndim=2, advantages_NT=advantages_NT, signal_NT=signal_NT, mask_NT=mask_NT)
    if not (math.isfinite(beta) and beta >= 0):
        raise ValueError(f"beta is {beta!r}; it must be a finite number, 0 or more.")
    signal = at_least_float32(signal_NT.detach()).where(mask_NT, 0)
    if not signal.isfinite().all():
        raise ValueError("a signal on a sampled token is not finite; look at its logprobs.")
    mean = scope_mean(signal, mask_NT, scope=scope)
    weight = (1 + beta * (signal / (mean + eps) - 1)).clamp(min=0)
    return (advantages_NT * torch.where(mean < floor, 1, weight)).where(mask_NT, 0)
