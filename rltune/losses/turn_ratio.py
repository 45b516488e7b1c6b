"""A2TGPO's loss: one ratio per turn, its tokens' geometric mean (arXiv 2605.06200, Eq 10-12).

Also the body of `rltune.losses.gspo`, whose ratio is that of one turn as long as the episode.
"""

import torch
from torch import Tensor

from rltune.losses.policy import PolicyLoss, kept, require_clips
from rltune.maths.checks import at_least_float32, require_same_shape
from rltune.maths.turns import broadcast_turns, turn_count, turn_mean


def turn_loss(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    advantages_BT: Tensor,
    *,
    mask_BT: Tensor,
    turn_ids_BT: Tensor,
    clip_low: float,
    clip_high: float,
    clip_scale_BT: Tensor | None = None,
    log_ratio_limit: float = 20.0,
) -> PolicyLoss:
    """Return the clipped surrogate loss of each token, with the ratio of its turn.

    log s_k = (1 / n_k) sum over the tokens t of turn k of (logp_t - old_logp_t)
    s_t     = exp(clamp(sg(log s_k) + logp_t - sg(logp_t), +-log_ratio_limit)),  sg = stop gradient
    L_t     = max(-A_t s_t, -A_t clamp(s_t, 1 - c_t clip_low, 1 + c_t clip_high))

    s_t has the value of s_k and passes its gradient to the token alone (GSPO-token, arXiv
    2507.18071). Where A and c are constant in a turn, the sum of L over the turn has exactly
    the gradient of the same sum with s_k itself, -A s_k for each token; where A differs inside a
    turn (token shaping), each token keeps its own.

    Differs from A2TGPO's released code: turns are given, not guessed from where the advantage
    changes, so that two neighbouring turns with equal advantages stay two turns. The ratio is
    bounded on both sides, as in `ppo_loss`.

    Args:
        logp_BT: Logprobs under the policy that is trained; the only input with a gradient.
        old_logp_BT: Logprobs under the policy that sampled.
        advantages_BT: One advantage per token.
        mask_BT: True on sampled tokens. A token outside takes no part in its turn's mean.
        turn_ids_BT: Turn of each sampled token, from 0; unused outside the mask.
        clip_low: How far the ratio may fall below 1; in [0, 1). The paper has 3e-3.
        clip_high: How far the ratio may rise above 1; >= 0. The paper has 4e-3.
        clip_scale_BT: c, what both clips are multiplied by at each token (see
            `rltune.losses.turn_clip`); None is 1 everywhere. Unused outside the mask.
        log_ratio_limit: Keeps exp finite.

    Returns:
        The loss, and the sums of `actor/pg_clipfrac` (tokens of turns whose clipped branch is the
        larger one) and `actor/ppo_kl` (old_logp - logp).

    Raises:
        ValueError: Shapes differ, the mask is not boolean, the turns are not int64, a sampled token
            is in no turn, a clip is out of range, or a clip scale is negative or not finite.

    """
    logp, old_logp, advantages = kept(logp_BT, old_logp_BT, advantages_BT, mask_BT=mask_BT)
    require_same_shape(mask_BT=mask_BT, turn_ids_BT=turn_ids_BT)
    require_clips(clip_low=clip_low, clip_high=clip_high)
    turns = _turns(turn_ids_BT, mask_BT)
    scale = _clip_scale(clip_scale_BT, mask_BT)
    token_log_ratio = (logp - old_logp).detach()
    means_BK = turn_mean(token_log_ratio, turns, n_turns=turn_count(turns))
    log_ratio = broadcast_turns(means_BK, turns) + (logp - logp.detach())
    ratio = log_ratio.clamp(-log_ratio_limit, log_ratio_limit).exp()
    scale = scale.to(ratio.dtype)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - scale * clip_low, 1 + scale * clip_high)
    sums = {
        "actor/pg_clipfrac": (clipped > plain).sum(),
        "actor/ppo_kl": -token_log_ratio.clamp(-log_ratio_limit, log_ratio_limit).sum(),
    }
    return PolicyLoss(per_token_BT=torch.maximum(plain, clipped), sums=sums)


def _turns(turn_ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the turn of each sampled token and -1 elsewhere."""
    turns = turn_ids_BT.where(mask_BT, -1)
    is_lost = mask_BT & (turns < 0)
    if is_lost.any():
        row, t = is_lost.nonzero()[0].tolist()
        raise ValueError(
            f"turn_ids_BT[{row}, {t}] is {turns[row, t].item()} on a sampled token; give it the "
            "index of its turn, from 0."
        )
    return turns


def _clip_scale(clip_scale_BT: Tensor | None, mask_BT: Tensor) -> Tensor:
    """Return c at each sampled token, and 1 elsewhere."""
    if clip_scale_BT is None:
        return torch.ones(mask_BT.shape, device=mask_BT.device)
    require_same_shape(clip_scale_BT=clip_scale_BT, mask_BT=mask_BT)
    scale = at_least_float32(clip_scale_BT.detach()).where(mask_BT, 1)
    is_bad = ~((scale >= 0) & scale.isfinite())
    if is_bad.any():
        row, t = is_bad.nonzero()[0].tolist()
        raise ValueError(
            f"clip_scale_BT[{row}, {t}] is {scale[row, t].item():g}; a clip scale must be finite "
            "and 0 or more. 1 leaves the clips as they are."
        )
    return scale
