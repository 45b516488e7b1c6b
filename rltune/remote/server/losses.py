"""Tinker's built-in losses of one datum: sums over its tokens, never means.

cross_entropy         -sum w log p
importance_sampling   -sum r A,                          r = p / p_given
ppo                   -sum min(r A, clip(r, low, high) A)
cispo                 -sum clip(r, low, high) A log p,   the clipped ratio without a gradient
"""

from collections.abc import Callable, Mapping

from torch import Tensor

Inputs = Mapping[str, Tensor]
"""`weights`, or `logprobs` (of the sampling policy) and `advantages`: one number a token, (T,)."""

Bounds = Mapping[str, float]


def cross_entropy(logp_T: Tensor, inputs: Inputs, bounds: Bounds) -> Tensor:
    """Return the negative weighted log-likelihood."""
    return -(logp_T * inputs["weights"]).sum()


def importance_sampling(logp_T: Tensor, inputs: Inputs, bounds: Bounds) -> Tensor:
    """Return the policy gradient with ratios and without bounds."""
    return -((logp_T - inputs["logprobs"]).exp() * inputs["advantages"]).sum()


def ppo(logp_T: Tensor, inputs: Inputs, bounds: Bounds) -> Tensor:
    """Return the clipped objective; Tinker's default bounds are 0.8 and 1.2."""
    ratio_T, gain_T = (logp_T - inputs["logprobs"]).exp(), inputs["advantages"]
    low, high = _bounds(bounds, 0.8, 1.2)
    return -(ratio_T * gain_T).minimum(ratio_T.clamp(low, high) * gain_T).sum()


def cispo(logp_T: Tensor, inputs: Inputs, bounds: Bounds) -> Tensor:
    """Return the objective with clipped ratios as weights; Tinker's default bounds are 0 and 4."""
    low, high = _bounds(bounds, 0.0, 4.0)
    ratio_T = (logp_T - inputs["logprobs"]).exp().clamp(low, high).detach()
    return -(ratio_T * inputs["advantages"] * logp_T).sum()


def _bounds(given: Bounds, low: float, high: float) -> tuple[float, float]:
    return given.get("clip_low_threshold", low), given.get("clip_high_threshold", high)


LOSSES: dict[str, Callable[[Tensor, Inputs, Bounds], Tensor]] = {
    "cross_entropy": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
    "cispo": cispo,
}
"""`loss_fn` -> loss of one datum from the logprobs of its target tokens, (T,)."""

NEEDED = {
    "cross_entropy": ("weights",),
    "importance_sampling": ("logprobs", "advantages"),
    "ppo": ("logprobs", "advantages"),
    "cispo": ("logprobs", "advantages"),
}
"""`loss_fn` -> its inputs besides `target_tokens`."""
