"""Micro-batches: rows that one forward pass computes together, packed up to a number of tokens.

How a mini-batch is cut decides memory and speed, and of results the last bits only. So that a trial
can be repeated bit by bit, it follows from config, model and rows, never from the memory that
happens to be free.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.forecast.memory import token_budget
from rltune.forecast.model_shapes import Shape, shape_of
from rltune.policy.load import Policy
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.trial import TrialConfig

PASS_SHARE = 1 / 16
"""What one more forward pass may cost: a share of the tokens of a full one."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The size of a micro-batch; one row may exceed it."""

    tokens: int  # most tokens that are computed, padding included
    rows: int | None = None  # most rows; None: as many as the tokens allow


def limit_of(policy: Policy, config: TrialConfig) -> Limit:
    """Return the limit of a config, its `auto` resolved by the shape of the model."""
    wanted = config.optim.tokens_per_micro_batch
    tokens = token_budget(config, _shape(policy)) if wanted == "auto" else wanted
    return Limit(tokens, config.optim.micro_batch_size)


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


def micro_batches(batch: TokenBatch, rows: Tensor, limit: Limit) -> tuple[Tensor, ...]:
    """Return the rows of each forward pass over some rows of a batch.

    Rows without a token to train on are in none: nothing of them is computed.

    Args:
        batch: The batch.
        rows: Indices of its rows, (R,).
        limit: Of one micro-batch.

    """
    lengths_R = batch.lengths_N[rows]
    rows, lengths_R = rows[lengths_R > 0], lengths_R[lengths_R > 0]
    return tuple(rows[index] for index in pack(lengths_R, limit))


def cut_batch(batch: TokenBatch, limit: Limit) -> tuple[Tensor, ...]:
    """Return the micro-batches of all rows of a batch; see `micro_batches`."""
    return micro_batches(batch, torch.arange(len(batch), device=batch.ids_NT.device), limit)


def padding_share(batch: TokenBatch, parts: tuple[Tensor, ...]) -> float:
    """Return the share of the tokens computed in micro-batches that is padding; 0 without any."""
    lengths_N = batch.lengths_N
    n_real = sum(int(lengths_N[index].sum()) for index in parts)
    n_computed = sum(len(index) * int(lengths_N[index].max()) for index in parts)
    return 1 - n_real / n_computed if n_computed else 0.0
