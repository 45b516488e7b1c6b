"""SEPA: pool the signal of execution tokens, so that GTPO weighs planning tokens apart.

H'_t = lam mean(H_exec) + (1 - lam) H_t  on execution tokens; planning tokens keep theirs.

When and how strongly is a schedule over optimiser steps. Its state is a frozen value that belongs
in the checkpoint. Source: textpolicy's `SEPAController`.
"""

import math
from dataclasses import dataclass, replace

from torch import Tensor

from rltune.advantages.scopes import scope_mean
from rltune.maths.checks import at_least_float32, require_mask, require_same_shape
from rltune_envs.choices import require_choice

SCHEDULES = ("none", "linear", "auto")


def sepa_pool(
    signal_NT: Tensor,
    planning_NT: Tensor,
    mask_NT: Tensor,
    *,
    lam: float,
    scope: str = "completion",
) -> Tensor:
    """Return the pooled signal, (N, T); 0 outside the mask.

    Args:
        signal_NT: Surprisal or entropy of each sampled token, in nats.
        planning_NT: True on planning tokens; anything outside the mask.
        mask_NT: True on sampled tokens.
        lam: Strength of the pooling, cut to [0, 1]; 0 leaves the signal as it is.
        scope: What the mean is taken over: an episode's execution tokens (`completion`) or all of
            the `batch`.

    Raises:
        ValueError: Shapes differ, a mask is not boolean, the scope is unknown, or `lam` is NaN.

    """
    exec_NT = _execution(signal_NT, planning_NT, mask_NT)
    if math.isnan(lam):
        raise ValueError(f"lam is {lam!r}; it must be a number.")
    lam = min(max(lam, 0.0), 1.0)
    signal = at_least_float32(signal_NT.detach()).where(mask_NT, 0)
    mean = scope_mean(signal, exec_NT, scope=scope)
    return (lam * mean + (1 - lam) * signal).where(exec_NT, signal)


def exec_variance(signal_NT: Tensor, planning_NT: Tensor, mask_NT: Tensor) -> float | None:
    """Return the population variance of the execution tokens' signal over the batch, in nats^2.

    None without any such token, or when it is not finite: an observation that `auto` leaves out.

    Raises:
        ValueError: Shapes differ, or a mask is not boolean.

    """
    exec_NT = _execution(signal_NT, planning_NT, mask_NT)
    values_M = signal_NT.detach()[exec_NT].double()
    if not len(values_M):
        return None
    variance = values_M.var(correction=0).item()
    return variance if math.isfinite(variance) else None


def _execution(signal_NT: Tensor, planning_NT: Tensor, mask_NT: Tensor) -> Tensor:
    require_mask(planning_NT, name="planning_NT")
    require_mask(mask_NT, name="mask_NT")
    require_same_shape(ndim=2, signal_NT=signal_NT, planning_NT=planning_NT, mask_NT=mask_NT)
    return mask_NT & ~planning_NT


@dataclass(frozen=True, slots=True)
class SepaState:
    """The state of SEPA between training steps; all fields are JSON values.

    Attributes:
        ema: Average of the execution tokens' variance; None before the first observation.
        reference: The average once the warm-up is over; None before.
        n_steps: Optimiser steps so far; the clock of the linear ramp.
        n_observed: Those whose batch had a variance; the clock of the warm-up.
        is_gate_open: Whether the success rate has ever reached the gate.

    """

    ema: float | None = None
    reference: float | None = None
    n_steps: int = 0
    n_observed: int = 0
    is_gate_open: bool = False


def sepa_update(
    state: SepaState,
    *,
    variance: float | None,
    success_rate: float,
    n_steps: int = 1,
    gate: float = 0.0,
    ema_decay: float = 0.99,
    warmup: int = 50,
    eps: float = 1e-8,
) -> SepaState:
    """Return the state after a training step.

    ema <- decay ema + (1 - decay) variance,   reference = max(ema, eps) after `warmup` steps

    The first variance is the average as it is.

    Differs from textpolicy, which counts completions: its warm-up of 50 is over within the first
    batch. Here the clock is the optimiser's; a batch is one observation, however many steps it
    makes.

    Args:
        state: Before the step.
        variance: `exec_variance` of its batch; None changes neither average nor warm-up.
        success_rate: Share of its episodes that were a success; NaN does not open the gate.
        n_steps: Optimiser steps that the batch made.
        gate: Success rate that opens the gate, once and for all; 0 is always open.
        ema_decay: Weight of the past in the average, in [0, 1].
        warmup: Observed optimiser steps after which the reference is fixed; 1 or more.
        eps: Floor of the reference; above 0.

    Raises:
        ValueError: A number is out of range.

    """
    if not (0 <= ema_decay <= 1 and 0 <= gate <= 1 and warmup >= 1 and n_steps >= 0 and eps > 0):
        raise ValueError(
            f"ema_decay {ema_decay!r} and gate {gate!r} must lie in [0, 1], warmup {warmup!r} must "
            f"be 1 or more, n_steps {n_steps!r} 0 or more, and eps {eps!r} above 0."
        )
    state = replace(
        state,
        n_steps=state.n_steps + n_steps,
        is_gate_open=state.is_gate_open or gate <= 0 or success_rate >= gate,
    )
    if variance is None:
        return state
    if not (math.isfinite(variance) and variance >= 0):
        raise ValueError(f"variance is {variance!r}; give 0 or more, or None for no observation.")
    ema = variance
    if state.ema is not None:
        ema = ema_decay * state.ema + (1 - ema_decay) * variance
    n_observed, reference = state.n_observed + n_steps, state.reference
    if reference is None and n_observed >= warmup:
        reference = max(ema, eps)
    return replace(state, ema=ema, reference=reference, n_observed=n_observed)


def sepa_lambda(
    state: SepaState,
    *,
    schedule: str,
    delay: int,
    steps: int,
    gate: float = 0.0,
    var_threshold: float = 0.2,
) -> float:
    """Return the strength of the pooling now, in [0, 1]; 0 while the gate is closed.

    linear  min(max(n - delay, 0) / steps, 1)    with n the optimiser steps so far
    auto    max(linear, 1 - min((ema / reference) / var_threshold, 1)); the second is 0 during the
            warm-up

    `auto` can fall again when the variance rises, but never below `linear`.

    Args:
        state: After the last step.
        schedule: `none`, `linear` or `auto`.
        delay: Optimiser steps before the ramp.
        steps: Length of the ramp, in optimiser steps; 0 makes no ramp, and `linear` stays 0.
        gate: As in `sepa_update`: one of 0 is open before the first step.
        var_threshold: Share of the reference at which `auto` starts to pool; above 0.

    Raises:
        ValueError: The schedule is unknown, or a number is out of range.

    """
    require_choice("schedule", schedule, SCHEDULES)
    if delay < 0 or steps < 0 or not var_threshold > 0:
        raise ValueError(
            f"delay {delay!r} and steps {steps!r} must be 0 or more, and var_threshold "
            f"{var_threshold!r} above 0."
        )
    if schedule == "none" or not (state.is_gate_open or gate <= 0):
        return 0.0
    linear = min(max(state.n_steps - delay, 0) / steps, 1.0) if steps else 0.0
    if schedule == "linear" or state.ema is None or state.reference is None:
        return linear
    return max(linear, 1 - min(state.ema / state.reference / var_threshold, 1.0))
