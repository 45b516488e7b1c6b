"""GSPO: one ratio per sequence, here all sampled tokens of an episode (arXiv 2507.18071)."""

from torch import Tensor

from rltune.losses.policy import PolicyLoss
from rltune.losses.turn_ratio import turn_loss
from rltune.maths.checks import require_mask


def gspo_loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    advantages_BT: Tensor,
    *,
    mask_BT: Tensor,
    clip_low: float,
    clip_high: float,
    log_ratio_limit: float = 20.0,
) -> PolicyLoss:
    """Return the clipped surrogate loss of each token, with the ratio of its episode.

    log s = mean over the row's sampled tokens of (logp - old_logp)
    L_t   = max(-A_t s_t, -A_t clamp(s_t, 1 - clip_low, 1 + clip_high))

    s_t has the value of s and passes its gradient to the token alone, as in `turn_loss`, of which
    this is the case of a single turn. The published clips are 3e-4 and 4e-4: a mean over hundreds
    of tokens moves far less than the ratio of one.

    Differs from verl: it always aggregates by `seq-mean-token-mean`, where here the caller chooses;
    it bounds the log-ratio at 10 from above only, and here the bound is `log_ratio_limit`, on both
    sides.

    Args:
        logp_BT: Logprobs under the policy that is trained; the only input with a gradient.
        old_logp_BT: Logprobs under the policy that sampled.
        advantages_BT: One advantage per token.
        mask_BT: True on sampled tokens.
        clip_low: How far the ratio may fall below 1; in [0, 1).
        clip_high: How far the ratio may rise above 1; >= 0.
        log_ratio_limit: Keeps exp finite.

    Returns:
        The loss, and the sums of `actor/pg_clipfrac` (tokens of episodes whose clipped branch is
        the larger one) and `actor/ppo_kl` (old_logp - logp).

    Raises:
        ValueError: Shapes differ, the mask is not boolean, or a clip is out of range.

    """
    require_mask(mask_BT, name="mask_BT")
    return turn_loss(
        logp_BT,
        old_logp_BT,
        advantages_BT,
        mask_BT=mask_BT,
        turn_ids_BT=mask_BT.long() - 1,  # turn 0 on sampled tokens, no turn elsewhere
        clip_low=clip_low,
        clip_high=clip_high,
        log_ratio_limit=log_ratio_limit,
    )
