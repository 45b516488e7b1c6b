"""Means over the sampled tokens of an episode, or over those of the whole batch."""

from torch import Tensor

from rltune.maths.masked import masked_mean, masked_sum
from rltune_envs.choices import require_choice

SCOPES = ("completion", "batch")


def scope_mean(values_NT: Tensor, mask_NT: Tensor, *, scope: str) -> Tensor:
    """Return the mean that a token's value is compared with, broadcast to (N, T).

    Args:
        values_NT: One per token; anything outside the mask.
        mask_NT: True on the tokens that count. The mean over none is 0.
        scope: `completion` (a row) or `batch`.

    Raises:
        ValueError: The scope is unknown, shapes differ, or the mask is not boolean.

    """
    require_choice("scope", scope, SCOPES)
    if scope == "batch":
        return masked_mean(values_NT, mask_NT).expand(mask_NT.shape)
    total_N = masked_sum(values_NT, mask_NT, dim=1)
    return (total_N / mask_NT.sum(dim=1).clamp(min=1))[:, None].expand(mask_NT.shape)
