"""From tokens to turns and back, by explicit turn indices.

`turn_ids_NT` holds the 0-based turn of each sampled token and -1 elsewhere (observations, prompt,
padding). Turns are columns, (N, K): a row with fewer turns has columns without tokens. Nothing is
inferred from where values change, so two neighbouring turns with equal values stay two turns.
"""

import torch
from torch import Tensor

from rltune.maths.checks import at_least_float32, require_mask, require_same_shape


def _require_turn_ids(turn_ids_NT: Tensor) -> None:
    if turn_ids_NT.ndim != 2 or turn_ids_NT.dtype != torch.int64:
        raise ValueError(
            f"turn_ids_NT has shape {tuple(turn_ids_NT.shape)} and dtype {turn_ids_NT.dtype}; "
            "expected one int64 per token, (N, T): the turn of a sampled token, -1 elsewhere."
        )
    if (turn_ids_NT < -1).any():
        raise ValueError(
            f"turn_ids_NT holds {int(turn_ids_NT.min())}; turns count from 0, and a token outside "
            "every turn is -1."
        )


def _column(turn_ids_NT: Tensor, *, n_turns: int) -> Tensor:
    """Return the column of each token: its turn, or one past the last column for no turn."""
    present = turn_count(turn_ids_NT)
    if present > n_turns:
        raise ValueError(
            f"n_turns is {n_turns} and turn_ids_NT holds turn {present - 1}; n_turns must be at "
            f"least {present}. Count turns with `turn_count` over the whole batch."
        )
    return turn_ids_NT.where(turn_ids_NT >= 0, n_turns)


def turn_count(turn_ids_NT: Tensor) -> int:
    """Return K, the number of turn columns that the batch needs: its largest index + 1, or 0.

    Raises:
        ValueError: The indices are not an int64 matrix, or one is below -1.

    """
    _require_turn_ids(turn_ids_NT)
    return int(turn_ids_NT.max()) + 1 if turn_ids_NT.numel() else 0


def has_turn(turn_ids_NT: Tensor, *, n_turns: int) -> Tensor:
    """Return, (N, K) boolean, whether a row has a token in a turn.

    Raises:
        ValueError: `n_turns` is below the number of turns present, or as in `turn_count`.

    """
    return _token_counts(turn_ids_NT, n_turns=n_turns) > 0


def turn_sum(values_NT: Tensor, turn_ids_NT: Tensor, *, n_turns: int) -> Tensor:
    """Return the sum of a turn's tokens, (N, K); 0 where a turn has no token.

    s_k = sum of x_t over the tokens t with turn_ids_t = k

    Differentiable; the result is float32, or float64 for float64 values. Tokens of no turn are
    summed into a column that is cut off: whatever they hold, NaN too, reaches neither the value nor
    the gradient.

    Args:
        values_NT: One value per token.
        turn_ids_NT: Turn of each token, -1 for none.
        n_turns: K, the number of columns; `turn_count` of the batch, or more.

    Raises:
        ValueError: Shapes differ, `n_turns` is below the number of turns present, or as in
            `turn_count`.

    """
    column_NT = _column(turn_ids_NT, n_turns=n_turns)
    require_same_shape(values_NT=values_NT, turn_ids_NT=turn_ids_NT)
    full_NT = at_least_float32(values_NT)
    start = full_NT.new_zeros(len(full_NT), n_turns + 1)  # the last column takes the rest
    return start.scatter_add(1, column_NT, full_NT)[:, :n_turns]


def turn_mean(values_NT: Tensor, turn_ids_NT: Tensor, *, n_turns: int) -> Tensor:
    """Return the mean over a turn's tokens, (N, K); 0 where a turn has no token.

    m_k = s_k / max(n_k, 1) with s_k of `turn_sum` and n_k the number of tokens of turn k

    Args:
        values_NT: One value per token.
        turn_ids_NT: Turn of each token, -1 for none.
        n_turns: K, the number of columns.

    Raises:
        ValueError: As in `turn_sum`.

    """
    total_NK = turn_sum(values_NT, turn_ids_NT, n_turns=n_turns)
    return total_NK / _token_counts(turn_ids_NT, n_turns=n_turns).clamp(min=1)


def _token_counts(turn_ids_NT: Tensor, *, n_turns: int) -> Tensor:
    column_NT = _column(turn_ids_NT, n_turns=n_turns)
    start = turn_ids_NT.new_zeros(len(turn_ids_NT), n_turns + 1)
    return start.scatter_add(1, column_NT, torch.ones_like(turn_ids_NT))[:, :n_turns]


def broadcast_turns(values_NK: Tensor, turn_ids_NT: Tensor) -> Tensor:
    """Return each turn's value on all its tokens, (N, T), and 0 on tokens of no turn.

    `turn_mean` of the result is `values_NK` again wherever a turn has tokens. Differentiable. The
    columns of turns without tokens are not read: they may hold NaN. The dtype is kept.

    Raises:
        ValueError: The rows differ, K is below the number of turns present, or as in `turn_count`.

    """
    if values_NK.ndim != 2 or turn_ids_NT.ndim != 2 or len(values_NK) != len(turn_ids_NT):
        raise ValueError(
            f"shapes do not fit: values_NK {tuple(values_NK.shape)}, "
            f"turn_ids_NT {tuple(turn_ids_NT.shape)}. Expected (N, K) and (N, T)."
        )
    column_NT = _column(turn_ids_NT, n_turns=values_NK.shape[1])
    padded = torch.cat([values_NK, values_NK.new_zeros(len(values_NK), 1)], 1)
    return padded.gather(1, column_NT)


def turn_ends(turn_ids_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Return, (N, T) boolean, the last masked-in token of each turn.

    Args:
        turn_ids_NT: Turn of each token, -1 for none; never falling along a row's sampled tokens.
        mask_NT: True on sampled tokens; each of them is in a turn.

    Raises:
        ValueError: A sampled token is in no turn, a row goes back to an earlier turn, shapes differ
            or the mask is not boolean, or as in `turn_count`.

    """
    _require_turn_ids(turn_ids_NT)
    require_mask(mask_NT, name="mask_NT")
    require_same_shape(turn_ids_NT=turn_ids_NT, mask_NT=mask_NT)
    turns_NT = turn_ids_NT.where(mask_NT, -1)
    _require_order(turns_NT, mask_NT)
    places = torch.arange(1, turns_NT.shape[1] + 1, device=turns_NT.device).expand_as(turns_NT)
    n_turns = turn_count(turns_NT)
    column_NT = _column(turns_NT, n_turns=n_turns)
    start = turns_NT.new_zeros(len(turns_NT), n_turns + 1)
    last_NK = start.scatter_reduce(1, column_NT, places, "amax")
    return mask_NT & (last_NK.gather(1, column_NT) == places)


def _require_order(turns_NT: Tensor, mask_NT: Tensor) -> None:
    is_lost = mask_NT & (turns_NT < 0)
    if is_lost.any():
        row, t = is_lost.nonzero()[0].tolist()
        raise ValueError(f"token {t} of row {row} is sampled but in no turn; give it a turn index.")
    if not turns_NT.numel():
        return
    latest_NT = turns_NT.cummax(1).values
    is_back = mask_NT & (turns_NT < latest_NT)
    if is_back.any():
        row, t = is_back.nonzero()[0].tolist()
        raise ValueError(
            f"token {t} of row {row} is of turn {int(turns_NT[row, t])} but comes after turn "
            f"{int(latest_NT[row, t])}; the turns of a row must be in order."
        )


def discounted_suffix_sum(values_NK: Tensor, is_counted_NK: Tensor, *, gamma: float) -> Tensor:
    """Return each counted turn's value plus the discounted ones that follow, (N, K).

    A_k = v_k + gamma A_next,    next = the next *counted* turn, A_next = 0 after the last

    A turn that does not count gets 0, and A_next passes it unchanged and undiscounted. The last
    counted turn keeps its value, and gamma 0 returns the values. Differentiable; the result is
    float32, or float64 for float64 values.

    Args:
        values_NK: One value per turn; any rubbish where it does not count.
        is_counted_NK: True where a turn counts.
        gamma: Discount per counted turn, in [0, 1].

    Raises:
        ValueError: Shapes differ, the counted turns are not boolean or `gamma` is out of range.

    """
    require_mask(is_counted_NK, name="is_counted_NK")
    require_same_shape(ndim=2, values_NK=values_NK, is_counted_NK=is_counted_NK)
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma is {gamma!r}; it must lie in [0, 1].")
    kept_NK = at_least_float32(values_NK).where(is_counted_NK, 0)
    next_sum = torch.zeros_like(kept_NK[:, :1].sum(1))
    columns = []
    for k in reversed(range(kept_NK.shape[1])):
        keep = is_counted_NK[:, k]
        next_sum = (kept_NK[:, k] + gamma * next_sum).where(keep, next_sum)
        columns.append(next_sum.where(keep, 0))
    return torch.stack(columns[::-1], 1) if columns else kept_NK
