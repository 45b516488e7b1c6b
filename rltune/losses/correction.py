"""Rollout correction: weights for tokens that the engine sampled with other logprobs than ours.

w = pi_old / pi_rollout: `old` is the policy that begins the step, by the trainer's forward pass,
`rollout` the one that sampled, by the engine's. They are one policy, unless sampling is ahead of
training; then the weights are those of decoupled PPO (arXiv 2110.00641). They multiply the policy
loss of a token, not entropy or KL: see `weigh`.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rltune.losses.policy import PolicyLoss
from rltune.maths.checks import at_least_float32, require_mask, require_same_shape
from rltune.maths.masked import masked_mean, masked_sum

CORRECTIONS: tuple[str, ...] = ("none", "tis", "icepop")


def rollout_weights(
    old_logp_NT: Tensor,
    rollout_logp_NT: Tensor,
    mask_NT: Tensor,
    *,
    kind: str,
    cap: float = 2.0,
    band: tuple[float, float] = (0.5, 5.0),
    log_ratio_limit: float = 20.0,
) -> Tensor:
    """Return the weight of each token, without a gradient; 0 outside the mask.

    w = exp(clamp(old_logp - rollout_logp, +-log_ratio_limit))
    none    1
    tis     min(w, cap)                            (truncated importance sampling)
    icepop  w where band[0] <= w <= band[1], 0 elsewhere: the token is left out

    As verl's token-level `rollout_is`, without its division by the batch mean. Differs: a NaN among
    the logprobs stays NaN, where verl's band makes it 0, so that the loss still tells of it.

    Args:
        old_logp_NT: Logprobs by the trainer, under the policy that begins the step.
        rollout_logp_NT: Logprobs that the engine reported.
        mask_NT: True on sampled tokens.
        kind: One of `CORRECTIONS`.
        cap: Largest weight of `tis`; at least 1.
        band: Lower and upper end of `icepop`'s band, both inside it; 0 <= band[0] <= 1 <= band[1].
        log_ratio_limit: Keeps exp finite.

    Raises:
        ValueError: Unknown kind, differing shapes, a mask that is not boolean, or `cap` or `band`
            is out of range: a token on which both agree must keep its weight of 1.

    """
    if kind not in CORRECTIONS:
        raise ValueError(
            f"{kind!r} is not a rollout correction. Choose one of {', '.join(CORRECTIONS)}."
        )
    if not cap >= 1:
        raise ValueError(f"cap is {cap!r}; it must be at least 1.")
    low, high = band
    if not 0 <= low <= 1 <= high:
        raise ValueError(f"band is {band!r}; it must hold 1, and its lower end must be >= 0.")
    ratio = _ratio(old_logp_NT, rollout_logp_NT, mask_NT, log_ratio_limit=log_ratio_limit)
    match kind:
        case "none":
            weights = torch.ones_like(ratio)
        case "tis":
            weights = ratio.clamp(max=cap)
        case _:  # icepop; comparisons with NaN are false, so NaN stays
            weights = ratio.where(~((ratio < low) | (ratio > high)), 0)
    return weights.where(mask_NT, 0)


def weigh(policy: PolicyLoss, weights_BT: Tensor, *, mask_BT: Tensor) -> PolicyLoss:
    """Return the policy loss with each token's loss times its weight; the sums stay as they are.

    Call it before `aggregate`, whose denominators still count every sampled token, as in verl.

    Args:
        policy: Result of any policy loss.
        weights_BT: `rollout_weights` of the same rows; any rubbish outside the mask.
        mask_BT: True on sampled tokens.

    Raises:
        ValueError: Shapes differ, or the mask is not boolean.

    """
    require_mask(mask_BT, name="mask_BT")
    loss_BT = policy.per_token_BT
    require_same_shape(ndim=2, per_token_BT=loss_BT, weights_BT=weights_BT, mask_BT=mask_BT)
    return replace(policy, per_token_BT=loss_BT * weights_BT.detach().where(mask_BT, 0))


def rollout_diagnostics(
    old_logp_NT: Tensor,
    rollout_logp_NT: Tensor,
    mask_NT: Tensor,
    weights_NT: Tensor | None,
    *,
    log_ratio_limit: float = 20.0,
) -> dict[str, float]:
    """Return how far trainer and engine are apart, by verl's names under `rollout_corr/`.

    With d = old_logp - rollout_logp, r = exp(clamp(d, +-limit)), and means over tokens, or over
    rows (m = mean of a row's tokens):

    logprob_diff_max              max |d|
    kl, k3_kl                     mean(-d), mean(r - 1 - log r): KL(rollout || old)
    {training,rollout}_ppl        mean over rows of exp(-m(logp)); `_log_ppl` without the exp
    log_ppl_{diff,abs_diff}       mean over rows of -m(d), of |m(d)|; also `_diff_{max,min}`
    ppl_ratio                     mean over rows of exp(-m(d))
    chi2_token, chi2_seq          mean(r^2) - 1, and the same with a row's product of r
    rollout_is_{mean,std,max,min} of the weights
    rollout_is_eff_sample_size    mean(w)^2 / mean(w^2), a share of 1
    rollout_is_ratio_fraction_*   tokens whose weight is not their ratio, which is above 1 (high) or
                                  below 1 (low)
    rollout_is_seq_*              of the rows' mean weights: mean, std (ddof 1), max, min,
                                  max_deviation from 1

    Differs from verl: a row without a sampled token does not count, where verl counts it as a
    logprob and a weight of 0; k3 is bounded; a fraction says what was cut, while verl counts for
    `tis` also ratios below 1 / cap, which it leaves alone.

    Args:
        old_logp_NT: Logprobs by the trainer, under the policy that begins the step.
        rollout_logp_NT: Logprobs that the engine reported.
        mask_NT: True on sampled tokens.
        weights_NT: `rollout_weights`; None where nothing is corrected (kind none), which leaves
            `rollout_is_*` out.
        log_ratio_limit: As given to `rollout_weights`.

    Returns:
        Plain numbers; nothing when there is no sampled token.

    Raises:
        ValueError: Shapes differ, or the mask is not boolean.

    """
    ratio = _ratio(old_logp_NT, rollout_logp_NT, mask_NT, log_ratio_limit=log_ratio_limit)
    if weights_NT is not None:
        require_same_shape(weights_NT=weights_NT, mask_NT=mask_NT)
    if not mask_NT.any():
        return {}
    metrics = _distances(old_logp_NT, rollout_logp_NT, mask_NT, log_ratio_limit=log_ratio_limit)
    if weights_NT is not None:
        metrics |= _weight_metrics(weights_NT.detach(), ratio, mask_NT)
    return {f"rollout_corr/{name}": value.item() for name, value in metrics.items()}


def _ratio(
    old_logp_NT: Tensor, rollout_logp_NT: Tensor, mask_NT: Tensor, *, log_ratio_limit: float
) -> Tensor:
    """Return r at each sampled token, and 1 elsewhere."""
    require_mask(mask_NT, name="mask_NT")
    require_same_shape(
        ndim=2, old_logp_NT=old_logp_NT, rollout_logp_NT=rollout_logp_NT, mask_NT=mask_NT
    )
    gap = at_least_float32(old_logp_NT.detach()) - at_least_float32(rollout_logp_NT.detach())
    return gap.where(mask_NT, 0).clamp(-log_ratio_limit, log_ratio_limit).exp()


def _row_means(values_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Return the mean over the sampled tokens of each row that has any."""
    lengths = mask_NT.sum(1)
    return (masked_sum(values_NT, mask_NT, dim=1) / lengths.clamp(min=1))[lengths > 0]


def _distances(
    old_logp_NT: Tensor, rollout_logp_NT: Tensor, mask_NT: Tensor, *, log_ratio_limit: float
) -> dict[str, Tensor]:
    # float64, so that the perplexity of an unlikely row does not overflow.
    old_logp, rollout_logp = old_logp_NT.detach().double(), rollout_logp_NT.detach().double()
    gap = (old_logp - rollout_logp).where(mask_NT, 0)
    bounded = gap.clamp(-log_ratio_limit, log_ratio_limit)
    log_training, log_rollout = -_row_means(old_logp, mask_NT), -_row_means(rollout_logp, mask_NT)
    diff = log_training - log_rollout
    log_product = gap.sum(1)[mask_NT.any(1)].clamp(-log_ratio_limit, log_ratio_limit)
    return {
        "logprob_diff_max": gap.abs().max(),
        "kl": masked_mean(-gap, mask_NT),
        "k3_kl": masked_mean(torch.expm1(bounded) - bounded, mask_NT),
        "training_ppl": log_training.exp().mean(),
        "training_log_ppl": log_training.mean(),
        "rollout_ppl": log_rollout.exp().mean(),
        "rollout_log_ppl": log_rollout.mean(),
        "log_ppl_diff": diff.mean(),
        "log_ppl_abs_diff": diff.abs().mean(),
        "log_ppl_diff_max": diff.max(),
        "log_ppl_diff_min": diff.min(),
        "ppl_ratio": diff.exp().mean(),
        "chi2_token": masked_mean(torch.expm1(2 * bounded), mask_NT),
        "chi2_seq": torch.expm1(2 * log_product).mean(),
    }


def _weight_metrics(weights_NT: Tensor, ratio_NT: Tensor, mask_NT: Tensor) -> dict[str, Tensor]:
    weights_M, ratio_M = weights_NT[mask_NT].double(), ratio_NT[mask_NT].double()
    mean, square = weights_M.mean(), weights_M.square().mean()
    row_means = _row_means(weights_NT.double(), mask_NT)
    is_cut = weights_M != ratio_M
    return {
        "rollout_is_mean": mean,
        "rollout_is_std": weights_M.std(correction=0),
        "rollout_is_max": weights_M.max(),
        "rollout_is_min": weights_M.min(),
        # 0 when every token was dropped: nothing is left, and 0 / 0 says nothing.
        "rollout_is_eff_sample_size": (mean.square() / square).where(square > 0, 0),
        "rollout_is_ratio_fraction_high": (is_cut & (ratio_M > 1)).double().mean(),
        "rollout_is_ratio_fraction_low": (is_cut & (ratio_M < 1)).double().mean(),
        "rollout_is_seq_mean": row_means.mean(),
        "rollout_is_seq_std": row_means.std() if len(row_means) > 1 else row_means.new_zeros(()),
        "rollout_is_seq_max": row_means.max(),
        "rollout_is_seq_min": row_means.min(),
        "rollout_is_seq_max_deviation": (row_means - 1).abs().max(),
    }
