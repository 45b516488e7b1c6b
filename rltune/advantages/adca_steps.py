"""The stages of ADCA: raw rewards of turns, their z-scores, the outcome's, and the sum of both.

`rltune.advantages.adca` runs them in order.
"""

import math

import torch
from torch import Tensor

from rltune.advantages.grpo import grpo
from rltune.maths.checks import (
    at_least_float32,
    require_mask,
    require_same_shape,
)
from rltune.maths.turns import discounted_suffix_sum
from rltune_envs.choices import require_choice

FUSIONS = ("last_step", "all_steps")
SCOPES = ("trajectory", "flat")


def raw_decouple(is_good_NK: Tensor, is_counted_NK: Tensor, *, fix_base: float) -> Tensor:
    """Return the raw reward of each counted turn, (N, K): +fix_base GOOD, -fix_base BAD.

    Args:
        is_good_NK: Whether a turn was called GOOD.
        is_counted_NK: Whether a turn exists and was judged; others get 0.
        fix_base: Size of the reward, above 0.

    Raises:
        ValueError: Shapes differ, a mask is not boolean, or `fix_base` is not above 0.

    """
    _require_masks(is_good_NK=is_good_NK, is_counted_NK=is_counted_NK)
    if not (fix_base > 0 and math.isfinite(fix_base)):
        raise ValueError(f"fix_base is {fix_base!r}; it must be above 0 and finite.")
    good_NK = torch.full(is_good_NK.shape, fix_base, device=is_good_NK.device, dtype=torch.float64)
    return good_NK.where(is_good_NK, -good_NK).where(is_counted_NK, 0)


def raw_allocation(
    is_good_NK: Tensor,
    is_counted_NK: Tensor,
    is_success_N: Tensor,
    *,
    consistent_weight: float = 1.0,
    bad_in_success_weight: float = 0.2,
    good_in_failure_weight: float = 0.2,
    eps: float = 1e-8,
) -> Tensor:
    """Return the raw rewards of `allocation`, (N, K): +1 or -1 shared out over a trajectory.

    raw_ij = s_i w_ij / W_i,    W_i = sum_j w_ij,    s_i = +1 on success and -1 on failure

    w is `consistent_weight` where flag and outcome agree, `bad_in_success_weight` on a BAD turn of
    a success and `good_in_failure_weight` on a GOOD turn of a failure. W_i <= eps gives 0.

    Args:
        is_good_NK: Whether a turn was called GOOD.
        is_counted_NK: Whether a turn exists and was judged; others get 0 and no share.
        is_success_N: Whether a trajectory is a success.
        consistent_weight: Share of an agreeing flag, 0 or more.
        bad_in_success_weight: Share of a BAD turn of a success, 0 or more.
        good_in_failure_weight: Share of a GOOD turn of a failure, 0 or more.
        eps: Sum of shares at or below which nothing is shared out.

    Raises:
        ValueError: Shapes differ, a mask is not boolean, or a weight is negative.

    """
    _require_masks(is_good_NK=is_good_NK, is_counted_NK=is_counted_NK)
    require_mask(is_success_N, name="is_success_N")
    require_rows(is_counted_NK, is_success_N=is_success_N)
    weights = {
        "consistent_weight": consistent_weight,
        "bad_in_success_weight": bad_in_success_weight,
        "good_in_failure_weight": good_in_failure_weight,
    }
    for name, number in weights.items():
        require_number(name, number)
    success_N1 = is_success_N[:, None]
    one_NK = torch.ones(is_good_NK.shape, device=is_good_NK.device, dtype=torch.float64)
    odd_NK = (one_NK * bad_in_success_weight).where(success_N1, good_in_failure_weight)
    weight_NK = (one_NK * consistent_weight).where(is_good_NK == success_N1, odd_NK)
    weight_NK = weight_NK.where(is_counted_NK, 0)
    total_N1 = weight_NK.sum(1, keepdim=True)
    share_NK = (weight_NK / total_N1.clamp(min=eps)).where(total_N1 > eps, 0)
    return share_NK.where(success_N1, -share_NK)


def step_zscore(
    raw_NK: Tensor,
    is_counted_NK: Tensor,
    group_N: Tensor,
    *,
    scope: str = "trajectory",
    eps: float = 1e-8,
    tiny: float = 1e-12,
) -> Tensor:
    """Return raw rewards as z-scores of their group's turns, (N, K); 0 where none is counted.

    `trajectory`: mu = mean_i mean_j r_ij, var = mean_i mean_j (r_ij - mu)^2, std = sqrt(var + eps)
    `flat`: mean and population variance over all turns of the group, std = max(sqrt(var), eps)
    z_ij = (r_ij - mu) / (std + tiny)

    Under `trajectory` every trajectory weighs alike, whatever its length, so the plain mean of z
    is not 0. Equal rewards give exactly 0.

    Args:
        raw_NK: Raw rewards; anything, NaN included, where a turn is not counted.
        is_counted_NK: Whether a turn exists and was judged.
        group_N: Group of each trajectory.
        scope: `trajectory` or `flat`.
        eps: See above.
        tiny: Added to the standard deviation.

    Raises:
        ValueError: Shapes differ, the scope is unknown, or a counted reward is not finite.

    """
    require_choice("scope", scope, SCOPES)
    require_mask(is_counted_NK, name="is_counted_NK")
    require_same_shape(ndim=2, raw_NK=raw_NK, is_counted_NK=is_counted_NK)
    require_rows(is_counted_NK, group_N=group_N)
    value_M = at_least_float32(raw_NK[is_counted_NK])
    if not value_M.isfinite().all():
        raise ValueError("a counted raw reward is not finite; judge it or do not count it.")
    _, index_N = torch.unique(group_N, return_inverse=True)
    index_M = index_N[:, None].expand_as(is_counted_NK)[is_counted_NK]
    weight_M = torch.ones_like(value_M)
    if scope == "trajectory":
        turns_NK = is_counted_NK.sum(1, keepdim=True).expand_as(is_counted_NK)
        weight_M = weight_M / turns_NK[is_counted_NK]
    # Counted from the group's minimum, the mean of equal values is exactly that value.
    start_G = value_M.new_full((len(group_N),), torch.inf)
    base_M = start_G.scatter_reduce(0, index_M, value_M, "amin")[index_M]
    from_base_M = value_M - base_M
    centred_M = from_base_M - _weighted_mean(from_base_M, weight_M, index_M)
    variance_M = _weighted_mean(centred_M.square(), weight_M, index_M)
    is_flat = scope == "flat"
    std_M = variance_M.sqrt().clamp(min=eps) if is_flat else (variance_M + eps).sqrt()
    z_NK = value_M.new_zeros(raw_NK.shape)
    z_NK[is_counted_NK] = centred_M / (std_M + tiny)
    return z_NK


def _weighted_mean(value_M: Tensor, weight_M: Tensor, index_M: Tensor) -> Tensor:
    """Return, for each member, the weighted mean of its group."""
    size = int(index_M.max()) + 1 if len(index_M) else 0
    start_G = value_M.new_zeros(size)
    total_G = start_G.index_add(0, index_M, value_M * weight_M)
    return (total_G / start_G.index_add(0, index_M, weight_M))[index_M]


def outcome_zscore(
    outcome_N: Tensor, group_N: Tensor, *, eps: float = 1e-8, tiny: float = 1e-12
) -> Tensor:
    """Return each outcome as a z-score of its group: population std; std <= eps centres only.

    Judged or not, with turns or without: every trajectory is in these statistics. This is
    `grpo` with `ddof=0`.

    Raises:
        ValueError: As in `grpo`.

    """
    return grpo(at_least_float32(outcome_N), group_N, ddof=0, eps=tiny, min_std=eps)


def fuse(
    step_NK: Tensor,
    outcome_N: Tensor,
    is_turn_NK: Tensor,
    *,
    fusion: str,
    alpha: float,
    length_normalize: bool = False,
) -> Tensor:
    """Return the advantage of each turn: what is credited to it and to the turns after it.

    `last_step`: c_ij = L_i (alpha z_ij + [j last] o_i),  `all_steps`: c_ij = L_i (alpha z_ij + o_i)
    A_ij = sum_{m>=j} c_im,    L_i = 1 / sqrt(K_i) when length-normalised, else 1

    With `all_steps` the outcome counts once per turn left, so that it grows with the length.

    Args:
        step_NK: Reward of each turn, such as `step_zscore`; 0 for a trajectory without flags, and
            anything where there is no turn.
        outcome_N: Outcome advantage of each trajectory.
        is_turn_NK: Whether a turn exists; others get 0.
        fusion: `last_step` or `all_steps`.
        alpha: Weight of the turns' rewards, 0 or more.
        length_normalize: Whether to divide by the root of the number of turns.

    Raises:
        ValueError: Shapes differ, the fusion is unknown or `alpha` is negative.

    """
    require_choice("fusion", fusion, FUSIONS)
    require_number("alpha", alpha)
    require_mask(is_turn_NK, name="is_turn_NK")
    require_same_shape(ndim=2, step_NK=step_NK, is_turn_NK=is_turn_NK)
    require_rows(is_turn_NK, outcome_N=outcome_N)
    left_NK = is_turn_NK.flip(1).cumsum(1).flip(1)
    gets_outcome_NK = is_turn_NK & (left_NK == 1) if fusion == "last_step" else is_turn_NK
    outcome_NK = outcome_N[:, None].expand_as(step_NK).where(gets_outcome_NK, 0)
    credit_NK = alpha * step_NK + outcome_NK
    if length_normalize:
        credit_NK = credit_NK / is_turn_NK.sum(1, keepdim=True).clamp(min=1).sqrt()
    return discounted_suffix_sum(credit_NK, is_turn_NK, gamma=1.0)  # 0 where there is no turn


def require_number(name: str, number: float) -> None:
    """Raise unless a number is finite and 0 or more.

    Raises:
        ValueError: It is not.

    """
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"{name} is {number!r}; it must be 0 or more, and finite.")


def _require_masks(**masks: Tensor) -> None:
    for name, mask in masks.items():
        require_mask(mask, name=name)
    require_same_shape(ndim=2, **masks)


def require_rows(matrix_NK: Tensor, **vectors: Tensor) -> None:
    """Raise unless each vector has one entry per row of the matrix.

    Raises:
        ValueError: One has not.

    """
    for name, vector_N in vectors.items():
        if vector_N.ndim != 1 or len(vector_N) != len(matrix_NK):
            raise ValueError(
                f"{name} has shape {tuple(vector_N.shape)}; expected one entry for each of the "
                f"{len(matrix_NK)} trajectories."
            )
