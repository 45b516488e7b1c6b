"""Which row of a key-value cache holds which context, when contexts branch and end.

Equal contexts share a row. Those that are being continued are the first rows, so that a pass
computes nothing else; rows that only a later turn needs stand behind them.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Layout(NamedTuple):
    """Where contexts go.

    Attributes:
        rows: New row of each context that goes on: a permutation of the first ones.
        moved: New row of each old row that is still needed.
        copies: (from, to): what must be copied, all at once, before anything is written.

    """

    rows: list[int]
    moved: dict[int, int]
    copies: list[tuple[int, int]]


def lay_out(parents: Sequence[int | None], kept: Collection[int]) -> Layout:
    """Return where contexts go, copying as few rows as possible.

    The first child of a row goes on in it: what is written there stands behind what is kept.

    Args:
        parents: Row that each context goes on from; None begins with nothing.
        kept: Rows that a later turn needs.

    """
    n = len(parents)
    heirs: dict[int, int] = {}
    for child, parent in enumerate(parents):
        if parent is not None:
            heirs.setdefault(parent, child)
    staying = {child: row for row, child in heirs.items() if row < n}
    free = iter([row for row in range(n) if row not in heirs])
    rows = [staying[child] if child in staying else next(free) for child in range(n)]
    moved = {row: rows[child] for row, child in heirs.items()}
    alone = sorted(set(kept) - heirs.keys())
    behind = {row for row in alone if row >= n}
    gaps = (row for row in range(n, n + len(alone)) if row not in behind)
    moved |= {row: row if row in behind else next(gaps) for row in alone}
    wanted = {
        *((parent, row) for parent, row in zip(parents, rows, strict=True) if parent is not None),
        *((row, moved[row]) for row in alone),
    }
    return Layout(rows, moved, sorted(pair for pair in wanted if pair[0] != pair[1]))
