"""Rows dealt to ranks, each of which computes its own in micro-batches.

All ranks make the same number of passes: weights in shards are put together by all of them, block
by block. Who has fewer rows runs one of the others' and counts nothing of it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.rollout.tokens import TokenBatch
from rltune.trainer.batches.micro_batches import Limit, MicroBatch, micro_batches


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the rows that are computed: that of one rank."""

    rank: int  # from 0
    ranks: int  # how many share the rows


WHOLE = Share(0, 1)


def own_micro_batches(
    batch: TokenBatch, rows: Tensor, limit: Limit, share: Share
) -> tuple[MicroBatch, ...]:
    """Return the forward passes of one rank over its share of some rows.

    It follows from the arguments alone, so every rank knows what the others compute.
    """
    if share.ranks == 1:
        return micro_batches(batch, rows, limit)
    is_by_group = limit.pair_cost is not None
    dealt = deal(batch, rows, share.ranks, is_by_group=is_by_group)
    passes = [micro_batches(batch, own, limit) for own in dealt]
    own, most = passes[share.rank], max(map(len, passes))
    if len(own) == most:
        return own
    trained = rows[batch.lengths_N[rows] > 0]
    shortest = trained[batch.lengths_N[trained].argmin()][None]
    return own + (MicroBatch(shortest, is_idle=True),) * (most - len(own))


def deal(batch: TokenBatch, rows: Tensor, ranks: int, *, is_by_group: bool) -> tuple[Tensor, ...]:
    """Return the rows of each rank: the longest first, each to the rank with the fewest tokens.

    Args:
        batch: The batch.
        rows: Indices of its rows, (R,).
        ranks: How many ranks there are; some may get none.
        is_by_group: Keep a group on one rank, where its rows share prefixes, if there are enough.

    """
    lengths_R, group_R = batch.lengths_N[rows].cpu(), batch.group_N[rows].cpu()
    groups_G = torch.unique(group_R)
    if is_by_group and len(groups_G) >= ranks:
        units = [(group_R == group).nonzero()[:, 0] for group in groups_G]
    else:
        units = list(torch.arange(len(rows))[:, None])
    sizes = [int(lengths_R[unit].sum()) for unit in units]
    tokens, hands = [0] * ranks, [list[Tensor]() for _ in range(ranks)]
    for nth in sorted(range(len(units)), key=lambda nth: -sizes[nth]):
        rank = tokens.index(min(tokens))
        tokens[rank] += sizes[nth]
        hands[rank].append(units[nth])
    nothing = torch.empty(0, dtype=torch.int64)
    return tuple(rows[torch.cat([nothing, *hand]).sort().values.to(rows.device)] for hand in hands)
