"""Micro-batches: rows that one forward pass computes together, packed up to a number of tokens.

How a mini-batch is cut decides memory and speed, and of results the last bits only. So that a trial
can be repeated bit by bit, it follows from config, model and rows, never from the memory that
happens to be free.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.forecast.model_shapes import Shape, shape_of
from rltune.forecast.pass_memory import cell_share, token_budget
from rltune.maths.prefix_tree import added_tokens, tree_order
from rltune.policy.load import Policy
from rltune.policy.row_tree import RowTree, row_tree, rows_work, tree_work
from rltune.remote.model import RemoteModel
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.trial import TrialConfig

PASS_SHARE = 1 / 16
"""What one more forward pass may cost: a share of the tokens of a full one."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The size of a micro-batch; one row may exceed it."""

    tokens: int  # most tokens that are computed, padding included
    rows: int | None = None  # most rows; None: as many as the tokens allow
    # `attention_cost` of the model where rows may share prefixes; None: they do not
    pair_cost: float | None = None
    # memory of a cell that attention reads in a tree, in tokens: `pass_memory.cell_share`
    cell_share: float = 0.0


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of one forward pass."""

    rows: Tensor  # indices in the batch
    tree: RowTree | None = None  # the same rows as prefix trees; None: they are run as they are
    # whether another rank has these rows, and this one runs them to keep step: it counts nothing
    is_idle: bool = False


def limit_of(policy: Policy, config: TrialConfig, pair_cost: float | None = None) -> Limit:
    """Return the limit of a config, its `auto` resolved by the shape of the model.

    `pair_cost` is the trial's `TrainState.pair_cost`. A service has no such limit: the SDK cuts a
    request to its size.
    """
    wanted, rows = config.optim.tokens_per_micro_batch, config.optim.micro_batch_size
    if isinstance(policy.model, RemoteModel):
        return Limit(sys.maxsize if wanted == "auto" else wanted, rows, pair_cost)
    shape = _shape(policy) if wanted == "auto" or pair_cost is not None else None
    share = cell_share(config, shape) if shape is not None and pair_cost is not None else 0.0
    return Limit(
        token_budget(config, shape) if wanted == "auto" else wanted, rows, pair_cost, share
    )


def _shape(policy: Policy) -> Shape | None:
    """Return the shape of a policy's model; None for an architecture of other numbers."""
    try:
        return shape_of(policy.model.config.to_dict())
    except (KeyError, TypeError, ValueError):
        return None


def pack(sizes_I: Tensor, limit: Limit) -> tuple[Tensor, ...]:
    """Return the indices of items in packs, smallest items first; equal ones in their order.

    A pack computes its items times its largest one, because the others are padded to it. Among all
    ways to cut the sorted items within the limit this one costs least, where a pack costs what it
    computes and `limit.tokens * PASS_SHARE` for the pass itself. An item that exceeds the limit is
    a pack of its own.

    Args:
        sizes_I: int64: size of each item in tokens.
        limit: Of one pack.

    """
    order = sizes_I.argsort(stable=True)
    sizes = sizes_I[order].tolist()
    fixed = int(limit.tokens * PASS_SHARE)
    cost, start = [0], [0]  # of the cheapest way to pack the first n items, and its last pack
    for end, largest in enumerate(sizes, start=1):
        most = max(1, limit.tokens // largest)
        first = max(0, end - min(most, limit.rows or most))
        costs = [cost[i] + (end - i) * largest + fixed for i in range(first, end)]
        start.append(first + costs.index(min(costs)))
        cost.append(min(costs))
    cuts = []
    end = len(sizes)
    while end:
        end = start[end]
        cuts.append(end)
    return torch.tensor_split(order, cuts[-2::-1]) if sizes else ()


def micro_batches(batch: TokenBatch, rows: Tensor, limit: Limit) -> tuple[MicroBatch, ...]:
    """Return the forward passes over some rows of a batch.

    Rows without a token to train on are in none: nothing of them is computed. Rows that share
    prefixes go together, as trees, where this is estimated to be less work.

    Args:
        batch: The batch.
        rows: Indices of its rows, (R,).
        limit: Of one micro-batch.

    """
    lengths_R = batch.lengths_N[rows]
    rows, lengths_R = rows[lengths_R > 0], lengths_R[lengths_R > 0]
    apart = tuple(MicroBatch(rows[index]) for index in pack(lengths_R, limit))
    if limit.pair_cost is None or len(rows) < 2:
        return apart
    together = _sharing(batch, rows, lengths_R - 1, limit)
    return min(apart, together, key=lambda parts: _work(batch, parts, limit))


def cut_batch(batch: TokenBatch, limit: Limit) -> tuple[MicroBatch, ...]:
    """Return the micro-batches of all rows of a batch; see `micro_batches`."""
    return micro_batches(batch, torch.arange(len(batch), device=batch.ids_NT.device), limit)


def _sharing(
    batch: TokenBatch, rows: Tensor, read_R: Tensor, limit: Limit
) -> tuple[MicroBatch, ...]:
    """Return micro-batches of whole groups, as trees; a group beyond the limit is cut.

    Groups are taken in their order, and rows of a group in that of its tree: the first counts
    whole, each further one what it adds. What attention keeps of all rows' cells may take as much
    memory again as the limit of tokens.
    """
    ids_RT, read_R, group_R = batch.ids_NT[rows].cpu(), read_R.cpu(), batch.group_N[rows].cpu()
    order_R = tree_order(ids_RT, read_R, group_R)
    added_R = added_tokens(ids_RT, read_R, group_R)
    cells_R = limit.cell_share * read_R
    runs: list[list[int]] = []
    size, seen = 0, 0.0
    for group in torch.unique(group_R).tolist():
        own = order_R[group_R[order_R] == group].tolist()
        whole, all_seen = size + int(added_R[own].sum()), seen + float(cells_R[own].sum())
        is_full = max(whole, all_seen) > limit.tokens
        if runs and (is_full or len(runs[-1]) + len(own) > _most(limit)):
            size = limit.tokens  # full: the group begins a micro-batch
        for row in own:
            size, seen = size + int(added_R[row]), seen + float(cells_R[row])
            if not runs or max(size, seen) > limit.tokens or len(runs[-1]) >= _most(limit):
                runs.append([])
                size, seen = int(read_R[row]), float(cells_R[row])
            runs[-1].append(row)
    index = [torch.tensor(run, device=rows.device) for run in runs]
    return tuple(_as_tree(batch, rows[own], limit) for own in index)


def _most(limit: Limit) -> int:
    return limit.rows or sys.maxsize


def _as_tree(batch: TokenBatch, rows: Tensor, limit: Limit) -> MicroBatch:
    """Return rows as trees, or as they are where this is less work."""
    part, pair_cost = batch.rows(rows), limit.pair_cost or 0.0
    tree = row_tree(part.ids_NT, part.action_mask_NT)
    is_less = tree_work(tree, pair_cost=pair_cost) < rows_work(
        part.action_mask_NT, pair_cost=pair_cost
    )
    return MicroBatch(rows, tree if is_less else None)


def _work(batch: TokenBatch, parts: tuple[MicroBatch, ...], limit: Limit) -> float:
    """Return the estimated work of passes, in that of a token without attention."""
    pair_cost, total = limit.pair_cost or 0.0, limit.tokens * PASS_SHARE * len(parts)
    for part in parts:
        if part.tree is None:
            total += rows_work(batch.rows(part.rows).action_mask_NT, pair_cost=pair_cost)
        else:
            total += tree_work(part.tree, pair_cost=pair_cost)
    return total


def padding_share(batch: TokenBatch, parts: Sequence[MicroBatch]) -> float:
    """Return the share of the tokens computed in micro-batches that is padding; 0 without any.

    A token that rows share is computed, and counted, once.
    """
    lengths_N, n_real, n_computed = batch.lengths_N, 0, 0
    for part in parts:
        if part.is_idle:
            continue
        if part.tree is None:
            n_real += int(lengths_N[part.rows].sum())
            n_computed += len(part.rows) * int(lengths_N[part.rows].max())
        else:
            n_real += len(part.tree.tree.ids_P)
            n_computed += len(part.tree.tree.ids_P)
    return 1 - n_real / n_computed if n_computed else 0.0
