"""Prefix trees of token rows: what several rows have in common is computed once.

Rows are sorted, so that neighbours share most. In this order a row adds to the tree the tokens
after its common prefix with the row before it; these places, and no others, are its own. All that
belongs to one token alone is computed for places. Attention is computed for rows: each asks at its
own places and sees its whole past.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Attention of R rows at once: Q of their cells ask, K of them are seen.

    Attributes:
        asking_RQ: Place of each cell that asks: the row's own ones, the last repeated to the width.
        seen_RK: Place of each cell of the row; any place behind its end.
        visible_RQK: Which cells each asking cell sees: those before it in its row, and itself.

    """

    asking_RQ: Tensor
    seen_RK: Tensor
    visible_RQK: Tensor


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The distinct tokens of B rows, each with the tokens before it, at P places.

    Attributes:
        ids_P: Token of each place.
        depth_P: Its column in the rows that pass through it.
        place_BT: The place of each cell that is read; -1 elsewhere.
        blocks: Attention of the rows that have places of their own.
        answer_P: Where each place's answer is among those of all blocks, flat, one after the other.

    """

    ids_P: Tensor
    depth_P: Tensor
    place_BT: Tensor
    blocks: tuple[Block, ...]
    answer_P: Tensor

    @property
    def n_pairs(self) -> int:
        """Pairs of cells that attention is computed for, whether one sees the other or not."""
        return sum(block.visible_RQK.numel() for block in self.blocks)

    def to(self, device: torch.device) -> "PrefixTree":
        """Return the same on a device."""
        return replace(
            self,
            ids_P=self.ids_P.to(device),
            depth_P=self.depth_P.to(device),
            place_BT=self.place_BT.to(device),
            blocks=tuple(_moved(block, device) for block in self.blocks),
            answer_P=self.answer_P.to(device),
        )


def _moved(block: Block, device: torch.device) -> Block:
    return Block(*(getattr(block, field.name).to(device) for field in fields(block)))


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


def prefix_tree(ids_BT: Tensor, read_B: Tensor) -> PrefixTree:
    """Return the tree of some rows; their order changes nothing but `place_BT`.

    Args:
        ids_BT: Token ids, right-padded, on the CPU.
        read_B: Tokens of each row that are read; at least one of them is positive.

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
    own_S = read_S - shared_S
    first_S = np.cumsum(own_S) - own_S
    columns_T = np.arange(ids.shape[1])
    is_own_ST = (columns_T >= shared_S[:, None]) & (columns_T < read_S[:, None])
    own_ST = np.where(is_own_ST, (first_S - shared_S)[:, None] + columns_T, -1)
    place_ST = np.maximum.accumulate(own_ST, axis=0)  # a shared cell has the place of the row above
    place_BT = np.full(ids.shape, -1, dtype=np.int64)
    place_BT[order_S] = np.where(columns_T < read_S[:, None], place_ST, -1)
    cuts = _blocks(own_S)
    blocks = [_block(place_ST[rows], shared_S[rows], read_S[rows]) for rows in cuts]
    return PrefixTree(
        ids_P=torch.from_numpy(ids[order_S][is_own_ST]),
        depth_P=torch.from_numpy(np.broadcast_to(columns_T, is_own_ST.shape)[is_own_ST].copy()),
        place_BT=torch.from_numpy(place_BT),
        blocks=tuple(blocks),
        answer_P=_answers(blocks, [own_S[rows] for rows in cuts]),
    )


def _blocks(own_S: Ints) -> list[Ints]:
    """Return rows with places of their own, in one or two blocks: those with many, those with few.

    Each block is as wide as its widest row; the cut is where that costs least, none where none
    costs less.
    """
    rows = np.argsort(-own_S, kind="stable")
    rows = rows[own_S[rows] > 0]
    widths = np.append(own_S[rows], 0)
    n_first = np.arange(len(rows), 0, -1)
    costs = n_first * widths[0] + (len(rows) - n_first) * widths[n_first]
    cut = int(n_first[costs.argmin()])
    return [part for part in (rows[:cut], rows[cut:]) if len(part)]


def _block(place_RT: Ints, shared_R: Ints, read_R: Ints) -> Block:
    n_asking, n_seen = int((read_R - shared_R).max()), int(read_R.max())
    column_RQ = np.minimum(shared_R[:, None] + np.arange(n_asking), read_R[:, None] - 1)
    return Block(
        torch.from_numpy(np.take_along_axis(place_RT, column_RQ, axis=1)),
        torch.from_numpy(np.maximum(place_RT[:, :n_seen], 0)),
        torch.from_numpy(np.arange(n_seen) <= column_RQ[:, :, None]),
    )


def _answers(blocks: list[Block], own: list[Ints]) -> Tensor:
    n_places = sum(int(own_R.sum()) for own_R in own)
    answer_P, before = torch.empty(n_places, dtype=torch.int64), 0
    for block, own_R in zip(blocks, own, strict=True):
        flat_RQ = before + torch.arange(block.asking_RQ.numel()).view(block.asking_RQ.shape)
        is_own_RQ = torch.arange(block.asking_RQ.shape[1]) < torch.from_numpy(own_R)[:, None]
        answer_P[block.asking_RQ[is_own_RQ]] = flat_RQ[is_own_RQ]
        before += block.asking_RQ.numel()
    return answer_P


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
