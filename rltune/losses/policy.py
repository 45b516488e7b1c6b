"""Policy losses per token. Tokens become a number in `rltune.losses.reduce`, nowhere else."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.maths.checks import at_least_float32, require_mask, require_same_shape


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A policy loss and what is worth logging about it.

    Attributes:
        per_token_BT: Loss of each token, exactly 0 (and without gradient) outside the mask.
        sums: Metric name to its detached sum over the sampled tokens. Add them up over the
            micro-batches, then divide by the token count of the whole mini-batch.

    """

    per_token_BT: Tensor
    sums: dict[str, Tensor]


def ppo_loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    advantages_BT: Tensor,
    *,
    mask_BT: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
    log_ratio_limit: float = 20.0,
) -> PolicyLoss:
    """Return the clipped surrogate loss of each token (arXiv 1707.06347), with dual clip.

    r = exp(clamp(logp - old_logp, +-log_ratio_limit))
    L = max(-A r, -A clamp(r, 1 - clip_low, 1 + clip_high))
    L = min(L, -A dual_clip)  where A < 0                       (arXiv 1912.09729)

    As verl's `vanilla`. Two clip bounds are DAPO's clip-higher (arXiv 2503.14476).

    Args:
        logp_BT: Logprobs under the policy that is trained; the only input with a gradient.
        old_logp_BT: Logprobs under the policy that sampled.
        advantages_BT: One advantage per token.
        mask_BT: True on sampled tokens.
        clip_low: How far the ratio may fall below 1; in [0, 1).
        clip_high: How far the ratio may rise above 1; >= 0.
        dual_clip: Bound on the ratio where A < 0; above 1. None switches it off.
        log_ratio_limit: Keeps exp finite.

    Returns:
        The loss, and the sums of `actor/pg_clipfrac` (the clipped branch is the larger one),
        `actor/pg_clipfrac_lower` (the dual clip binds) and `actor/ppo_kl` (old_logp - logp).

    Raises:
        ValueError: Shapes differ, the mask is not boolean, or a number is out of range.

    """
    logp, old_logp, advantages = kept(logp_BT, old_logp_BT, advantages_BT, mask_BT=mask_BT)
    require_clips(clip_low=clip_low, clip_high=clip_high)
    _require_dual_clip(dual_clip)
    log_ratio = (logp - old_logp).clamp(-log_ratio_limit, log_ratio_limit)
    ratio = log_ratio.exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(plain, clipped)
    is_lower = torch.zeros_like(mask_BT)
    if dual_clip is not None:
        bound = -advantages * dual_clip
        is_lower = (advantages < 0) & (loss > bound)
        loss = bound.where(is_lower, loss)
    sums = {
        "actor/pg_clipfrac": (clipped > plain).sum(),
        "actor/pg_clipfrac_lower": is_lower.sum(),
        "actor/ppo_kl": -log_ratio.detach().sum(),
    }
    return PolicyLoss(per_token_BT=loss.where(mask_BT, 0), sums=sums)


def kept(
    logp_BT: Tensor, old_logp_BT: Tensor, advantages_BT: Tensor, *, mask_BT: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a ratio loss is made of, in full precision and 0 outside the mask.

    Dropped before any arithmetic, so that a NaN outside the mask reaches no gradient either. Only
    the first keeps its gradient.

    Raises:
        ValueError: Shapes differ, or the mask is not boolean.

    """
    require_mask(mask_BT, name="mask_BT")
    require_same_shape(
        ndim=2,
        logp_BT=logp_BT,
        old_logp_BT=old_logp_BT,
        advantages_BT=advantages_BT,
        mask_BT=mask_BT,
    )
    return (
        at_least_float32(logp_BT).where(mask_BT, 0),
        at_least_float32(old_logp_BT.detach()).where(mask_BT, 0),
        advantages_BT.detach().where(mask_BT, 0),
    )


def require_clips(*, clip_low: float, clip_high: float) -> None:
    """Raise unless the bounds 1 - clip_low and 1 + clip_high stand around 1, the lower above 0.

    Raises:
        ValueError: `clip_low` is not in [0, 1), or `clip_high` is negative.

    """
    if not 0 <= clip_low < 1:
        raise ValueError(f"clip_low is {clip_low!r}; it must lie in [0, 1).")
    if not clip_high >= 0:
        raise ValueError(f"clip_high is {clip_high!r}; it must be >= 0.")


def _require_dual_clip(dual_clip: float | None) -> None:
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(
            f"dual_clip is {dual_clip!r}; it must be above 1, or None to switch it off."
        )
