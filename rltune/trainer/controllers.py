"""Controllers that adapt from step to step: the KL coefficient, SEPA, the early stop."""

from dataclasses import dataclass, field, replace

from rltune.advantages.sepa import SepaState, sepa_lambda, sepa_update
from rltune.losses.kl import AdaptiveKl, update_adaptive_kl
from rltune.spec.schema.advantage import SepaConfig
from rltune.spec.schema.loss import Loss


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of the rewards of a group against that at the start, for the early stop."""

    first_total: float = 0.0  # sum of the in-group reward stds of the first steps
    # how many steps are in it: `FIRST_STEPS`, and more while none of them had a spread
    n_first: int = 0
    n_low: int = 0  # steps in a row with less than the configured share of their mean

    @property
    def n_flat(self) -> int:
        """Steps from the first on without any spread; 0 once there was some."""
        return 0 if self.first_total else self.n_first


FIRST_STEPS = 10
NO_SPREAD = 1e-9  # a std of rewards up to here is rounding


@dataclass(frozen=True, slots=True)
class Controllers:
    """State of everything that adapts; part of `Progress`, and so of every checkpoint."""

    # coefficient of the KL loss; None until the first step, and it is the config's
    kl: AdaptiveKl | None = None
    # average variance of the execution tokens, and SEPA's gate
    sepa: SepaState = field(default_factory=SepaState)
    spread: Spread = field(default_factory=Spread)  # in-group spread of rewards


def kl_coef(state: Controllers, config: Loss) -> float:
    """Return what the KL loss is multiplied by now."""
    return config.kl_loss_coef if state.kl is None else state.kl.coef


def kl_after(
    state: Controllers, kl: float | None, *, config: Loss, rollouts: int
) -> AdaptiveKl | None:
    """Return the KL coefficient's state after a step; None for one that is fixed.

    A step that trained on no token has no KL (None), and the coefficient stays.
    """
    if config.kl_target is None or kl is None:
        return state.kl
    now = AdaptiveKl(kl_coef(state, config))
    return update_adaptive_kl(
        now, kl, target=config.kl_target, horizon=config.kl_horizon, n=rollouts
    )


def spread_after(state: Spread, std: float, *, share: float | None) -> Spread:
    """Return the spread's state after a step whose mean in-group reward std was `std`.

    Steps without any spread are in the mean of the start. Where all of it are such, the start is
    the first ten steps from the first spread on.
    """
    if share is None:
        return state
    std = std if std > NO_SPREAD else 0.0
    if state.n_flat >= FIRST_STEPS and std:
        return Spread(first_total=std, n_first=1)
    if state.n_first < FIRST_STEPS or state.n_flat:
        total = state.first_total + std
        return replace(state, first_total=total, n_first=state.n_first + 1)
    is_low = std < share * state.first_total / state.n_first
    return replace(state, n_low=state.n_low + 1 if is_low else 0)


def sepa_strength(state: SepaState, config: SepaConfig) -> float:
    """Return how strongly SEPA pools in the coming step."""
    return sepa_lambda(
        state,
        schedule=config.schedule,
        delay=config.delay,
        steps=config.steps,
        gate=config.gate,
        var_threshold=config.var_threshold,
    )


def sepa_after(
    state: SepaState,
    config: SepaConfig,
    *,
    variance: float | None,
    success_rate: float,
    n_steps: int,
) -> SepaState:
    """Return SEPA's state after a step that made `n_steps` optimiser steps."""
    if config.schedule == "none":
        return state
    return sepa_update(
        state,
        variance=variance,
        success_rate=success_rate,
        n_steps=n_steps,
        gate=config.gate,
        ema_decay=config.ema_decay,
        warmup=config.warmup,
    )
