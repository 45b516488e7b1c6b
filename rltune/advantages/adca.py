"""ADCA: credit of single turns from GOOD and BAD flags (AgentEvolver, arXiv 2511.10395).

raw_ij -> z_ij = Z_g(raw);    c_ij = alpha z_ij + outcome_i on its turns;    A_ij = sum_{m>=j} c_im

A turn is a column of (N, K). A trajectory that was not judged keeps its outcome advantage: its
z-scores are 0 and it takes no part in the statistics of the others. `maths.turns.broadcast_turns`
puts the result on tokens.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.advantages.adca_metrics import adca_metrics
from rltune.advantages.adca_steps import (
    fuse,
    outcome_zscore,
    raw_allocation,
    raw_decouple,
    require_number,
    require_rows,
    step_zscore,
)
from rltune.maths.checks import (
    at_least_float32,
    require_mask,
    require_same_shape,
)
from rltune_envs.choices import require_choice

SCHEMES = ("decouple", "allocation")
ALPHA_SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True, slots=True)
class AdcaResult:
    """The result of `adca`.

    Attributes:
        advantages_NK: Advantage of each turn; 0 where there is no turn.
        metrics: `adca/*`, see `rltune.advantages.adca_metrics`.

    """

    advantages_NK: Tensor
    metrics: dict[str, float]


def adca(
    flags_NK: Tensor,
    is_judged_N: Tensor,
    is_turn_NK: Tensor,
    outcome_N: Tensor,
    is_success_N: Tensor,
    group_N: Tensor,
    *,
    scheme: str = "decouple",
    fusion: str = "last_step",
    alpha: float = 0.1,
    fix_base: float = 0.2,
    normalize: bool = True,
    scope: str = "trajectory",
    length_normalize: bool = False,
    consistent_weight: float = 1.0,
    bad_in_success_weight: float = 0.2,
    good_in_failure_weight: float = 0.2,
    eps: float = 1e-8,
    outcome_advantage_N: Tensor | None = None,
) -> AdcaResult:
    """Return one advantage per turn from flags and outcomes.

    Differs from AgentEvolver: missing flags are not padded with GOOD, they take the trajectory out
    of the attribution; success is the caller's flag, where the original has three thresholds;
    `allocation` may be length-normalised too; equal raw rewards give exactly 0.

    Args:
        flags_NK: 1 or True for a GOOD turn, 0 or False for a BAD one (bool or int8). Anything
            where there is no turn or the trajectory was not judged.
        is_judged_N: Whether a trajectory's flags are there.
        is_turn_NK: Whether a turn exists.
        outcome_N: Episode rewards.
        is_success_N: Whether an episode is a success, by the one threshold of its reward.
        group_N: Group of each trajectory: equal integers share a task.
        scheme: Raw reward of a turn: `decouple` (`raw_decouple`) or `allocation`
            (`raw_allocation`).
        fusion: Turns that get the outcome added: `last_step` or `all_steps`; see `fuse`.
        alpha: Weight of the z-scores beside the outcome; 0 leaves the outcome alone.
        fix_base: Size of a raw reward under `decouple`; cancels under `normalize`.
        normalize: Whether raw rewards are z-scored in their group; else they are used as they are.
        scope: What that z-score weighs alike: `trajectory` or `flat`; see `step_zscore`.
        length_normalize: Whether a trajectory's credit is divided by sqrt(its turns).
        consistent_weight: Share of a turn whose flag agrees with the outcome, under `allocation`.
        bad_in_success_weight: Share of a BAD turn of a success, under `allocation`.
        good_in_failure_weight: Share of a GOOD turn of a failure, under `allocation`.
        eps: Floor of standard deviations and of sums of shares.
        outcome_advantage_N: Advantages of another estimator in the outcome's place, such as
            `maxrl`; None means `outcome_zscore`.

    Raises:
        ValueError: Shapes or dtypes do not fit, a name is unknown, a number is out of range, a
            reward is not finite, or a judged turn's flag is neither 0 nor 1.

    """
    require_choice("scheme", scheme, SCHEMES)
    require_number("alpha", alpha)
    is_counted_NK = _judged_turns(flags_NK, is_judged_N, is_turn_NK)
    is_good_NK = (flags_NK == 1) & is_counted_NK
    require_rows(is_turn_NK, outcome_N=outcome_N, is_success_N=is_success_N, group_N=group_N)
    require_mask(is_success_N, name="is_success_N")
    if scheme == "decouple":
        step_NK = raw_decouple(is_good_NK, is_counted_NK, fix_base=fix_base)
    else:
        step_NK = raw_allocation(
            is_good_NK,
            is_counted_NK,
            is_success_N,
            consistent_weight=consistent_weight,
            bad_in_success_weight=bad_in_success_weight,
            good_in_failure_weight=good_in_failure_weight,
            eps=eps,
        )
    if normalize:
        step_NK = step_zscore(step_NK, is_counted_NK, group_N, scope=scope, eps=eps)
    if outcome_advantage_N is None:
        outcome_advantage_N = outcome_zscore(outcome_N, group_N, eps=eps)
    step_NK = step_NK.to(at_least_float32(outcome_advantage_N).dtype)
    advantages_NK = fuse(
        step_NK,
        outcome_advantage_N,
        is_turn_NK,
        fusion=fusion,
        alpha=alpha,
        length_normalize=length_normalize,
    )
    metrics = adca_metrics(
        step_NK=step_NK,
        advantages_NK=advantages_NK,
        outcome_advantage_N=outcome_advantage_N,
        is_good_NK=is_good_NK,
        is_counted_NK=is_counted_NK,
        is_turn_NK=is_turn_NK,
        is_success_N=is_success_N,
        group_N=group_N,
        alpha=alpha,
    )
    return AdcaResult(advantages_NK, metrics)


def alpha_at(
    step: int,
    *,
    alpha: float,
    alpha_min: float = 0.0,
    decay_steps: int = 100,
    kind: str = "constant",
) -> float:
    """Return alpha at a training step, counted from 0.

    `cosine`: alpha_min + (alpha - alpha_min) (1 + cos(pi p)) / 2,  p = min(step / decay_steps, 1)

    It depends on the step alone: there is no state to save.

    Raises:
        ValueError: The kind is unknown, a number is negative or `decay_steps` is below 1.

    """
    require_choice("kind", kind, ALPHA_SCHEDULES)
    for name, number in (("step", step), ("alpha", alpha), ("alpha_min", alpha_min)):
        require_number(name, number)
    if decay_steps < 1:
        raise ValueError(f"decay_steps is {decay_steps!r}; it must be 1 or more.")
    if kind == "constant":
        return alpha
    progress = min(step / decay_steps, 1.0)
    return alpha_min + 0.5 * (alpha - alpha_min) * (1 + math.cos(math.pi * progress))


def _judged_turns(flags_NK: Tensor, is_judged_N: Tensor, is_turn_NK: Tensor) -> Tensor:
    """Return the turns that count, and refuse flags there that are neither 0 nor 1."""
    if flags_NK.dtype not in (torch.bool, torch.int8):
        raise ValueError(
            f"flags_NK has dtype {flags_NK.dtype}; expected bool or int8, 1 for GOOD and 0 for BAD."
        )
    require_mask(is_turn_NK, name="is_turn_NK")
    require_mask(is_judged_N, name="is_judged_N")
    require_same_shape(ndim=2, flags_NK=flags_NK, is_turn_NK=is_turn_NK)
    require_rows(is_turn_NK, is_judged_N=is_judged_N)
    is_counted_NK = is_turn_NK & is_judged_N[:, None]
    is_bad_NK = is_counted_NK & (flags_NK != 0) & (flags_NK != 1)
    if is_bad_NK.any():
        row, k = is_bad_NK.nonzero()[0].tolist()
        raise ValueError(
            f"flag {int(flags_NK[row, k])} of turn {k} of trajectory {row} is neither 1 (GOOD) nor "
            "0 (BAD). A trajectory without all its flags is not judged: is_judged_N False."
        )
    return is_counted_NK
