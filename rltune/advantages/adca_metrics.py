"""Metrics of `adca` on one batch: how flags and outcomes agree, and which of them dominates.

A rate over nothing is 0, and `adca/judged_rate` shows whether there was anything: every step has
every key.
"""

import torch
from torch import Tensor

from rltune.maths.groups import group_std
from rltune.maths.masked import masked_mean, masked_std


def adca_metrics(
    *,
    step_NK: Tensor,
    advantages_NK: Tensor,
    outcome_advantage_N: Tensor,
    is_good_NK: Tensor,
    is_counted_NK: Tensor,
    is_turn_NK: Tensor,
    is_success_N: Tensor,
    group_N: Tensor,
    alpha: float,
    tiny: float = 1e-12,
) -> dict[str, float]:
    """Return the metrics `adca/*`; all rates are shares in [0, 1].

    - `judged_rate`: trajectories with turns that were judged
    - `steps_mean`: turns of a judged trajectory
    - `good_rate`, `good_in_success_rate`, `good_in_failure_rate`: judged turns called GOOD
    - `agree_rate`: judged trajectories where most turns are GOOD on success, BAD on failure (a tie
      is no majority)
    - `step_mean`, `step_std`: the turns' rewards as they enter the sum, over judged turns
    - `outcome_mean`, `outcome_std`: outcome advantages of trajectories with turns
    - `outcome_share`: mean of |o| / (|o| + alpha sum |z|), how much of a judged trajectory's credit
      is its outcome; trajectories with neither do not count
    - `sign_agree_rate`: judged trajectories whose first turn is credited with the outcome's sign
    - `no_spread_taught_rate`: groups without outcome spread where turns still differ in credit
    - `alpha`: the weight that was used

    Args:
        step_NK: Rewards of turns, 0 where not judged.
        advantages_NK: What `fuse` gave.
        outcome_advantage_N: Outcome advantages.
        is_good_NK: Whether a turn was called GOOD.
        is_counted_NK: Whether a turn exists and was judged.
        is_turn_NK: Whether a turn exists.
        is_success_N: Whether a trajectory is a success.
        group_N: Group of each trajectory.
        alpha: Weight of the turns' rewards.
        tiny: Outcome advantages and turn rewards at or below this count as none.

    """
    has_turns_N, is_judged_N = is_turn_NK.any(1), is_counted_NK.any(1)
    turns_N, good_N = is_counted_NK.sum(1), is_good_NK.sum(1)
    success_NK = is_success_N[:, None].expand_as(is_counted_NK)
    outcome_N = outcome_advantage_N.where(has_turns_N, 0)
    good = is_good_NK.to(step_NK.dtype)
    is_majority_N = (good_N * 2 > turns_N).where(is_success_N, good_N * 2 < turns_N)
    mass_N = alpha * step_NK.abs().sum(1)
    total_N = outcome_N.abs() + mass_N
    first_N = advantages_NK.gather(1, _first(is_turn_NK))[:, 0] if is_turn_NK.numel() else outcome_N
    values = {
        "judged_rate": masked_mean(is_judged_N.to(step_NK.dtype), has_turns_N),
        "steps_mean": masked_mean(turns_N.to(step_NK.dtype), is_judged_N),
        "good_rate": masked_mean(good, is_counted_NK),
        "good_in_success_rate": masked_mean(good, is_counted_NK & success_NK),
        "good_in_failure_rate": masked_mean(good, is_counted_NK & ~success_NK),
        "agree_rate": masked_mean(is_majority_N.to(step_NK.dtype), is_judged_N),
        "step_mean": masked_mean(step_NK, is_counted_NK),
        "step_std": masked_std(step_NK, is_counted_NK),
        "outcome_mean": masked_mean(outcome_N, has_turns_N),
        "outcome_std": masked_std(outcome_N, has_turns_N),
        "outcome_share": masked_mean(
            outcome_N.abs() / total_N.clamp(min=tiny), is_judged_N & (total_N > tiny)
        ),
        "sign_agree_rate": masked_mean(
            ((first_N > 0) == is_success_N).to(step_NK.dtype), is_judged_N
        ),
        "no_spread_taught_rate": _no_spread_credit(mass_N, outcome_advantage_N, group_N, tiny=tiny),
    }
    return {f"adca/{name}": float(value) for name, value in values.items()} | {
        "adca/alpha": float(alpha)
    }


def _first(is_turn_NK: Tensor) -> Tensor:
    """Return the column of each row's first turn, (N, 1); 0 in a row without turns."""
    return is_turn_NK.to(torch.uint8).argmax(1, keepdim=True)


def _no_spread_credit(mass_N: Tensor, outcome_N: Tensor, group_N: Tensor, *, tiny: float) -> Tensor:
    """Return the share of groups without spread of the outcome that have credit of turns."""
    is_even_N = group_std(outcome_N, group_N, ddof=0) <= tiny
    groups_G, index_N = torch.unique(group_N, return_inverse=True)
    start_G = mass_N.new_zeros(len(groups_G))
    is_credited_G = start_G.index_add(0, index_N, mass_N) > tiny
    is_even_G = start_G.index_add(0, index_N, is_even_N.to(mass_N.dtype)) > 0
    return masked_mean(is_credited_G.to(mass_N.dtype), is_even_G)
