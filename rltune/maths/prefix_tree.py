"""Prefix trees of token rows: what several rows have in common is computed once.

Rows are sorted, so that neighbours share most. In this order a row adds to a tree the tokens after
its common prefix with the row before it, and these places are numbered depth first:

    a token k is an ancestor of q, or q itself, exactly where k <= q < end_k

A run of sorted rows is one packed row. Shorter runs repeat prefixes, longer ones make attention
over more places than it needs: `pack` takes the width that costs least.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]
_FINER = 2**0.25  # ratio of the widths that are tried


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The distinct tokens of B rows, packed into R rows of W places.

    Attributes:
        ids_RW: Token of each place; 0 where there is none.
        depth_RW: Its column in the rows that pass through it.
        end_RW: Flat index, as in `place_BT`, after the last place that comes after it in a row.
        place_BT: Flat index r W + w of the place of each cell that is read; -1 elsewhere.
        n_distinct: Places in use.

    """

    ids_RW: Tensor
    depth_RW: Tensor
    end_RW: Tensor
    place_BT: Tensor
    n_distinct: int

    def to(self, device: torch.device) -> "PackedRows":
        """Return the same on a device."""
        return PackedRows(
            self.ids_RW.to(device),
            self.depth_RW.to(device),
            self.end_RW.to(device),
            self.place_BT.to(device),
            self.n_distinct,
        )


def tree_order(ids_NT: Tensor, read_N: Tensor, group_N: Tensor) -> Tensor:
    """Return the rows sorted by group and then token by token, (N,); equal rows keep their order.

    Args:
        ids_NT: Token ids, right-padded.
        read_N: Tokens of each row that are read.
        group_N: Equal values form a group.

    """
    keys_NT = _keys(_array(ids_NT), _array(read_N))
    return torch.from_numpy(_sorted(keys_NT, _array(group_N)))


def added_tokens(ids_NT: Tensor, read_N: Tensor, group_N: Tensor) -> Tensor:
    """Return how many tokens each row adds to its group's tree, rows taken in `tree_order`, (N,).

    Their sum over a group is the number of its distinct tokens.
    """
    keys_NT, group = _keys(_array(ids_NT), _array(read_N)), _array(group_N)
    order_N = _sorted(keys_NT, group)
    shared_N = _shared(keys_NT[order_N])
    shared_N[1:][np.diff(group[order_N]) != 0] = 0
    added_N = _array(read_N).copy()
    added_N[order_N] -= shared_N
    return torch.from_numpy(added_N)


def pack(ids_BT: Tensor, read_B: Tensor, *, pair_cost: float) -> PackedRows:
    """Pack rows as trees; the result does not depend on the order of the rows but for `place_BT`.

    Args:
        ids_BT: Token ids, right-padded, on the CPU.
        read_B: Tokens of each row that are read; at least one of them is positive.
        pair_cost: Cost of attention from one place to another, in costs of all else for a place.

    Raises:
        ValueError: No token is read.

    """
    ids, read = _array(ids_BT), _array(read_B)
    keys_BT = _keys(ids, read)
    order_S = _sorted(keys_BT, np.zeros_like(read))
    order_S = order_S[read[order_S] > 0]
    if not len(order_S):
        raise ValueError("no token of these rows is read")
    shared_S, read_S = _shared(keys_BT[order_S]), read[order_S]
    run_S = _cheapest(shared_S.tolist(), read_S.tolist(), pair_cost)
    return _lay_out(ids, order_S, read_S, shared_S, run_S)


def visible_places(end_RW: Tensor) -> Tensor:
    """Return which places each place sees, (R, W, W): its ancestors and itself."""
    place_RW = torch.arange(end_RW.numel(), device=end_RW.device).view(end_RW.shape)
    seeing, seen = place_RW[:, :, None], place_RW[:, None, :]
    return (seen <= seeing) & (seeing < end_RW[:, None, :])


def _array(tensor: Tensor) -> Ints:
    return tensor.numpy()


def _keys(ids_NT: Ints, read_N: Ints) -> npt.NDArray[np.uint32]:
    """Return ids from 1, and 0 behind what is read: big-endian, so that bytes sort as tokens do."""
    is_read_NT = np.arange(ids_NT.shape[1]) < read_N[:, None]
    return np.where(is_read_NT, ids_NT + 1, 0).astype(">u4")


def _sorted(keys_NT: npt.NDArray[np.uint32], group_N: Ints) -> Ints:
    columns = [group_N[:, None].astype(">u4"), keys_NT]
    rows = np.ascontiguousarray(np.concatenate(columns, axis=1))
    return rows.view(f"S{rows.shape[1] * rows.itemsize}")[:, 0].argsort(kind="stable")


def _shared(keys_ST: npt.NDArray[np.uint32]) -> Ints:
    """Return the length of each row's common prefix with the row before it; 0 for the first."""
    differs_ST = (keys_ST[1:] != keys_ST[:-1]) | (keys_ST[1:] == 0)
    at_end = np.ones((len(differs_ST), 1), dtype=np.bool_)
    shared_S = np.concatenate([differs_ST, at_end], axis=1).argmax(axis=1)
    return np.concatenate([[0], shared_S])


def _cheapest(shared_S: list[int], read_S: list[int], pair_cost: float) -> Ints:
    """Return the packed row of each sorted row, at the width that costs least."""
    narrowest = max(read_S)
    widest = sum(read_S) - sum(shared_S)
    width, best, best_cost = float(narrowest), np.zeros(len(read_S), np.int64), np.inf
    while True:
        run_S, used = _runs(shared_S, read_S, int(width))
        cost = (run_S[-1] + 1) * used * (1 + pair_cost * used)
        if cost < best_cost:
            best, best_cost = np.array(run_S), cost
        if width >= widest:
            return best
        width *= _FINER


def _runs(shared_S: list[int], read_S: list[int], width: int) -> tuple[list[int], int]:
    """Cut sorted rows into as few runs as fit a width; return each row's run and the width used."""
    run, size, used = -1, width + 1, 0
    runs = []
    for shared, read in zip(shared_S, read_S, strict=True):
        size += read - shared
        if size > width:
            run, size = run + 1, read
        used = max(used, size)
        runs.append(run)
    return runs, used


def _lay_out(ids_BT: Ints, order_S: Ints, read_S: Ints, shared_S: Ints, run_S: Ints) -> PackedRows:
    is_first_S = np.diff(run_S, prepend=-1) > 0
    begin_S = np.where(is_first_S, 0, shared_S)  # the column of the first token that a row adds
    added_S = read_S - begin_S
    before_S = np.cumsum(added_S) - added_S
    used_R = np.bincount(run_S, weights=added_S).astype(np.int64)
    width = int(used_R.max())
    # Flat index of the first place that a row adds.
    start_S = before_S + (np.arange(len(used_R)) * width - np.cumsum(used_R) + used_R)[run_S]
    columns_T = np.arange(ids_BT.shape[1])
    is_new_ST = (columns_T >= begin_S[:, None]) & (columns_T < read_S[:, None])
    new_ST = np.where(is_new_ST, start_S[:, None] + columns_T - begin_S[:, None], -1)
    place_ST = np.maximum.accumulate(new_ST, axis=0)  # a shared cell has the place of the row above
    end_ST = _ends(begin_S, start_S, columns_T, total=len(used_R) * width)
    place_P = new_ST[is_new_ST]
    ids_P, depth_P = np.zeros((2, len(used_R) * width), dtype=np.int64)
    end_P = np.arange(1, len(ids_P) + 1)  # a place that is not used sees itself
    ids_P[place_P] = ids_BT[order_S][is_new_ST]
    depth_P[place_P] = np.broadcast_to(columns_T, is_new_ST.shape)[is_new_ST]
    end_P[place_P] = end_ST[is_new_ST]
    place_BT = np.full(ids_BT.shape, -1, dtype=np.int64)
    place_BT[order_S] = np.where(columns_T < read_S[:, None], place_ST, -1)
    ids, depth, end = (torch.from_numpy(a.reshape(-1, width)) for a in (ids_P, depth_P, end_P))
    return PackedRows(ids, depth, end, torch.from_numpy(place_BT), int(added_S.sum()))


def _ends(begin_S: Ints, start_S: Ints, columns_T: Ints, *, total: int) -> Ints:
    """Return, (S, T), where the next row begins that has no cell in common with this column."""
    leaves_ST = np.where(begin_S[:, None] <= columns_T, start_S[:, None], total)
    after_ST = np.minimum.accumulate(leaves_ST[::-1], axis=0)[::-1]
    return np.concatenate([after_ST[1:], np.full((1, len(columns_T)), total)])
