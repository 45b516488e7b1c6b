"""Distance to the reference policy: estimators per token, the exact sum, the adaptive coefficient.

With d = logp - ref_logp of a token sampled from the policy:
k1 = d,  abs = |d|,  k2 = d^2 / 2,  k3 = exp(-d) - 1 + d   (http://joschu.net/blog/kl-approx.html)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rltune.maths.checks import at_least_float32, require_same_shape

# Bounds of the published k3: the exponent, then the value.
K3_EXPONENT_LIMIT = 20.0
K3_VALUE_LIMIT = 10.0


def _k1(d: Tensor) -> Tensor:
    return d


def _k2(d: Tensor) -> Tensor:
    return 0.5 * d.square()


def _k3(d: Tensor) -> Tensor:
    # Both clamps cut the gradient by selection, so no 0 * inf appears behind the outer one. k3 is
    # never negative; the lower bound only removes the last bit's rounding.
    x = (-d).clamp(-K3_EXPONENT_LIMIT, K3_EXPONENT_LIMIT)
    return (torch.expm1(x) - x).clamp(0, K3_VALUE_LIMIT)


_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": _k1,
    "kl": _k1,
    "abs": torch.abs,
    "k2": _k2,
    "mse": _k2,
    "k3": _k3,
    "low_var_kl": _k3,
}
KL_KINDS: tuple[str, ...] = (*_ESTIMATORS, *(f"{name}+" for name in _ESTIMATORS))


def kl_penalty(logp: Tensor, ref_logp: Tensor, *, kind: str) -> Tensor:
    """Return an estimate of KL(policy || reference) for each token.

    A `+` after the name gives the base's value with k2's gradient, which is the unbiased gradient
    of the reverse KL on-policy. k1's own gradient is 0 in expectation: as a loss it does nothing.

    Value and gradient are finite for any finite input, also in float16. Differs from verl only in
    k3's rounding: expm1 instead of exp - 1, and never below 0. Outside k3's bounds (d < -2.6) its
    gradient is 0, as published.

    Args:
        logp: Logprobs of the sampled tokens under the policy; carries the gradient.
        ref_logp: The same under the frozen reference. Put equal numbers outside the mask, or drop
            those tokens with `where` before: a NaN here gives a NaN there.
        kind: One of `KL_KINDS`. `full` needs logits: see `full_kl`.

    Raises:
        ValueError: The name is unknown or the shapes differ.

    """
    if kind not in KL_KINDS:
        hint = " The exact sum over the vocabulary is `full_kl`." if kind == "full" else ""
        raise ValueError(
            f"{kind!r} is not a KL estimator. Choose one of {', '.join(KL_KINDS)}.{hint}"
        )
    require_same_shape(logp=logp, ref_logp=ref_logp)
    d = at_least_float32(logp) - at_least_float32(ref_logp.detach())
    estimate = _ESTIMATORS[kind.removesuffix("+")](d)
    if not kind.endswith("+"):
        return estimate
    surrogate = _k2(d)
    return estimate.detach() + (surrogate - surrogate.detach())


def full_kl(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Return the exact KL(policy || reference) at each place, summed over the vocabulary.

    KL = sum_v p_v (log p_v - log q_v),  p = softmax(logits), q = softmax(ref_logits)

    Args:
        logits: Finite logits after temperature, vocabulary last; carries the gradient.
        ref_logits: The same under the frozen reference.

    Raises:
        ValueError: The shapes differ.

    """
    require_same_shape(logits=logits, ref_logits=ref_logits)
    logp = at_least_float32(logits).log_softmax(-1)
    ref_logp = at_least_float32(ref_logits.detach()).log_softmax(-1)
    return (logp.exp() * (logp - ref_logp)).sum(-1)


@dataclass(frozen=True, slots=True)
class AdaptiveKl:
    """State of the adaptive KL coefficient; belongs in the checkpoint, as JSON.

    Attributes:
        coef: What the KL term is multiplied by.

    """

    coef: float


def update_adaptive_kl(
    state: AdaptiveKl, kl: float, *, target: float, horizon: float, n: float, band: float = 0.2
) -> AdaptiveKl:
    """Return the state after a step whose mean KL was `kl` (arXiv 1909.08593).

    coef <- coef (1 + clip(kl / target - 1, -band, band) n / horizon)

    Args:
        state: Before the step.
        kl: Mean KL of the step's batch.
        target: KL at which the coefficient stays; > 0.
        horizon: Samples over which the coefficient may change by a share of `band`; > 0.
        n: Samples in the step; >= 0.
        band: Largest relative error that counts; >= 0.

    Raises:
        ValueError: `target` or `horizon` is not positive, `n` or `band` is negative, `kl` is not a
            number, or `band * n / horizon` is 1 or more: one step could then take the coefficient
            to 0, where it stays, or below.

    """
    if not (target > 0 and horizon > 0):
        raise ValueError(f"target {target!r} and horizon {horizon!r} must be positive.")
    if not (n >= 0 and band >= 0):
        raise ValueError(f"n {n!r} and band {band!r} must be 0 or more.")
    if not band * n / horizon < 1:
        raise ValueError(
            f"horizon is {horizon!r} with n {n!r} and band {band!r}; one step could take the "
            f"coefficient to 0 or below. Give a horizon above {band * n:g}."
        )
    if kl != kl:
        raise ValueError("kl is NaN; the coefficient would be lost. Stop the trial as diverged.")
    error = min(max(kl / target - 1, -band), band)
    return replace(state, coef=state.coef * (1 + error * n / horizon))
