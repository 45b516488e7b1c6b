"""CISPO: REINFORCE with clipped importance weights, so that no token loses its gradient.

MiniMax-M1, arXiv 2506.13585.
"""

from torch import Tensor

from rltune.losses.policy import PolicyLoss, kept


def cispo_loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    advantages_BT: Tensor,
    *,
    mask_BT: Tensor,
    clip_low: float,
    clip_high: float,
    log_ratio_limit: float = 20.0,
) -> PolicyLoss:
    """Return the loss of each token, weighted by its clipped ratio.

    r = exp(clamp(logp - old_logp, +-log_ratio_limit))
    L = -sg(clamp(r, 1 - clip_low, 1 + clip_high)) A logp,  sg = stop gradient

    As verl's `cispo`. The value of L depends on logp itself and says nothing; its gradient is what
    counts.

    Args:
        logp_BT: Logprobs under the policy that is trained; the only input with a gradient.
        old_logp_BT: Logprobs under the policy that sampled.
        advantages_BT: One advantage per token.
        mask_BT: True on sampled tokens.
        clip_low: How far the weight may fall below 1; in [0, 1]. 1 is no lower bound, as published.
        clip_high: How far the weight may rise above 1; >= 0.
        log_ratio_limit: Keeps exp finite.

    Returns:
        The loss, and the sums of `actor/pg_clipfrac` (tokens whose weight is a bound instead of
        their ratio) and `actor/ppo_kl` (old_logp - logp).

    Raises:
        ValueError: Shapes differ, the mask is not boolean, or a clip is out of range.

    """
    logp, old_logp, advantages = kept(logp_BT, old_logp_BT, advantages_BT, mask_BT=mask_BT)
    if not (0 <= clip_low <= 1 and clip_high >= 0):
        raise ValueError(
            f"clip_low is {clip_low!r} and clip_high is {clip_high!r}; clip_low must lie in [0, 1] "
            "(1 is no lower bound) and clip_high must be >= 0."
        )
    log_ratio = (logp.detach() - old_logp).clamp(-log_ratio_limit, log_ratio_limit)
    ratio = log_ratio.exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    sums = {
        "actor/pg_clipfrac": (weight != ratio).sum(),
        "actor/ppo_kl": -log_ratio.sum(),
    }
    return PolicyLoss(per_token_BT=-weight * advantages * logp, sums=sums)
