"""HICRA: planning tokens get a bonus (arXiv 2509.03646).

A'_t = A_t + alpha |A_t|  on planning tokens:  A (1 + alpha) where A > 0, A (1 - alpha) where A < 0
"""

from torch import Tensor

from rltune.maths.checks import require_mask, require_same_shape


def hicra(advantages_NT: Tensor, planning_NT: Tensor, mask_NT: Tensor, *, alpha: float) -> Tensor:
    """Return the advantages with the bonus, (N, T); 0 outside the mask.

    Differs from textpolicy: `alpha` above 1 is refused, because it turns a penalty into a reward.

    Args:
        advantages_NT: One per sampled token.
        planning_NT: True on planning tokens; anything outside the mask.
        mask_NT: True on sampled tokens.
        alpha: Size of the bonus, as a share of the advantage, in [0, 1]; 0 switches it off.

    Raises:
        ValueError: Shapes differ, a mask is not boolean, or `alpha` is out of range.

    """
    require_mask(planning_NT, name="planning_NT")
    require_mask(mask_NT, name="mask_NT")
    require_same_shape(
        ndim=2, advantages_NT=advantages_NT, planning_NT=planning_NT, mask_NT=mask_NT
    )
    if not 0 <= alpha <= 1:
        raise ValueError(
            f"alpha is {alpha!r}; it must lie in [0, 1]. Above 1 it turns penalties into rewards."
        )
    advantages = advantages_NT.where(mask_NT, 0)
    return advantages + (alpha * advantages.abs()).where(planning_NT, 0)
