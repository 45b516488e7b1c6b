"""The critic's loss per token."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.maths.checks import at_least_float32, require_mask, require_same_shape


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """A value loss and what is worth logging about it.

    Attributes:
        per_token_BT: Loss of each token, exactly 0 (and without gradient) outside the mask.
        sums: Metric name to its detached sum over the sampled tokens, as in `PolicyLoss`.

    """

    per_token_BT: Tensor
    sums: dict[str, Tensor]


def value_loss(
    values_BT: Tensor,
    old_values_BT: Tensor,
    returns_BT: Tensor,
    *,
    mask_BT: Tensor,
    value_clip: float,
) -> ValueLoss:
    """Return the clipped squared error of each token's value.

    L = 0.5 max((V - R)^2, (clamp(V, V_old - value_clip, V_old + value_clip) - R)^2)

    As verl's `compute_value_loss`, before aggregation.

    Args:
        values_BT: Values under the critic that is trained; the only input with a gradient.
        old_values_BT: Values from when the advantages were computed.
        returns_BT: Targets, `GaeResult.returns_NT`.
        mask_BT: True on sampled tokens.
        value_clip: How far a value may move before its gradient stops; > 0, in reward units.

    Returns:
        The loss, and the sum of `critic/vf_clipfrac` (the clipped branch is the larger one).

    Raises:
        ValueError: Shapes differ, the mask is not boolean, or `value_clip` is not positive.

    """
    require_mask(mask_BT, name="mask_BT")
    require_same_shape(
        ndim=2,
        values_BT=values_BT,
        old_values_BT=old_values_BT,
        returns_BT=returns_BT,
        mask_BT=mask_BT,
    )
    if not value_clip > 0:
        raise ValueError(f"value_clip is {value_clip!r}; it must be positive.")
    values = at_least_float32(values_BT).where(mask_BT, 0)
    old_values = at_least_float32(old_values_BT.detach()).where(mask_BT, 0)
    returns = returns_BT.detach().where(mask_BT, 0)
    near = torch.clamp(values, old_values - value_clip, old_values + value_clip)
    plain = (values - returns).square()
    clipped = (near - returns).square()
    return ValueLoss(
        per_token_BT=0.5 * torch.maximum(plain, clipped),
        sums={"critic/vf_clipfrac": (clipped > plain).sum()},
    )
