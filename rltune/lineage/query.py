"""Queries of a lineage table: the best row, the ancestors of a row, its children."""

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from rltune.errors import Problem, StoreError
from rltune.lineage.row import LineageRow, resolve_alias
from rltune.types import RowStatus

ELIGIBLE = frozenset({RowStatus.KEEP, RowStatus.BASELINE})
COMPARED = ELIGIBLE | {RowStatus.DISCARD}
"""Rows that finished and were compared with the best at record time."""

_NEAR = 2000  # newest ids among which a misspelt one is looked for


Item = TypeVar("Item")


class Best(NamedTuple):
    """The best row, None when there is none, and the other rows that reach the same metric."""

    row: LineageRow | None
    ties: tuple[LineageRow, ...]


class Decision(NamedTuple):
    """How a finished row compares with the best at record time."""

    status: RowStatus  # KEEP or DISCARD
    delta_vs_best: float | None  # new - best; None when there is no best or no new metric
    baseline_exp: str  # id of that best, or empty


@dataclass(frozen=True, slots=True)
class Chain:
    """How a row came about."""

    rows: tuple[LineageRow, ...]  # kept ancestors from the root on, then the row itself
    skipped: tuple[LineageRow, ...] = ()  # ancestors that were not kept, from the root on
    missing: str = ""  # parent that is named and not in the table; empty when none is
    cycle: tuple[str, ...] = ()  # ids along a circle of parents, first and last equal; else empty


def best(rows: Sequence[LineageRow], mode: str) -> Best:
    """Return the best of the kept and baseline rows by core_metric.

    A row of any other status does not count, whatever it scored: blocked, overrun and
    disqualified runs often carry a metric. None and NaN never win. Among equals the
    earliest row is the best, and the others are named as ties.
    """
    sign = sign_of(mode)
    scored = [
        (sign * row.core_metric, row)
        for row in rows
        if row.status in ELIGIBLE
        and row.core_metric is not None
        and not math.isnan(row.core_metric)
    ]
    if not scored:
        return Best(None, ())
    top = max(score for score, _ in scored)
    winners = [row for score, row in scored if score == top]
    return Best(winners[0], tuple(winners[1:]))


def sign_of(mode: str) -> float:
    """Return 1 where more is better, -1 where less is; ValueError for another mode."""
    if mode not in ("max", "min"):
        raise ValueError(f"mode {mode!r} is not a direction. Choose 'max' or 'min'.")
    return 1.0 if mode == "max" else -1.0


def chain(rows: Sequence[LineageRow], exp_id: str) -> Chain:
    """Walk the parents of a row.

    Raises:
        StoreError: No row has this id.

    """
    by_id: dict[str, LineageRow] = {}
    for row in rows:
        by_id.setdefault(row.exp_id, row)  # of duplicates the first counts
    return walk(by_id, exp_id)


def walk(by_id: Mapping[str, LineageRow], exp_id: str) -> Chain:
    """Walk the parents of a row in a table by id; only the rows on the way are looked up.

    Raises:
        StoreError: No row has this id.

    """
    name = find_id(by_id, exp_id)
    walked: dict[str, LineageRow] = {}
    while name in by_id and name not in walked:
        row = by_id[name]
        walked[name] = row
        name = resolve_alias(row.parent_exp, by_id)
    start, *ancestors = walked.values()
    ancestors.reverse()
    ids = list(walked)
    return Chain(
        rows=(*(row for row in ancestors if row.status in ELIGIBLE), start),
        skipped=tuple(row for row in ancestors if row.status not in ELIGIBLE),
        missing=name if name and name not in by_id else "",
        cycle=(*ids[ids.index(name) :], name) if name in walked else (),
    )


def find_id(ids: Collection[str], exp_id: str) -> str:
    """Return the id that a person means by `exp_id`: itself, or the only one that begins with it.

    Raises:
        StoreError: No row has it; the message names the nearest.

    """
    name = resolve_alias(exp_id, ids)
    if name in ids:
        return name
    begun = [one for one in ids if one.startswith(name)] if name else []
    if len(begun) == 1:
        return begun[0]
    if begun:
        more = f" and {len(begun) - 3} more" if len(begun) > 3 else ""
        shown = f"{', '.join(begun[:3])}{more}"
        what = f"{exp_id!r} matches {len(begun)} ids: {shown}."
        raise StoreError(Problem("exp_id", what, action="Give a longer prefix."))
    near = difflib.get_close_matches(name, list(ids)[-_NEAR:], n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "`rltune lineage show` lists the ids."
    raise StoreError(Problem("exp_id", f"{exp_id!r} is not in the table.", action=hint))


def children(rows: Sequence[LineageRow], exp_id: str) -> tuple[LineageRow, ...]:
    """Return the rows whose parent is `exp_id`, whatever became of them, in file order.

    Raises:
        StoreError: No row has this id.

    """
    ids = dict.fromkeys(row.exp_id for row in rows)
    name = find_id(ids, exp_id)
    return tuple(row for row in rows if resolve_alias(row.parent_exp, ids) == name)


def recent(rows: Sequence[Item], n: int) -> tuple[Item, ...]:
    """Return the last `n` rows of the table, newest first; none for `n` of 0."""
    return tuple(reversed(rows[-n:])) if n > 0 else ()


def decide_status(metric: float | None, rows: Sequence[LineageRow], mode: str) -> Decision:
    """Compare a finished trial with the best row at record time: strictly better is kept."""
    top = best(rows, mode).row
    if metric is None or not math.isfinite(metric):
        return Decision(RowStatus.DISCARD, None, top.exp_id if top else "")
    if top is None or top.core_metric is None:
        return Decision(RowStatus.KEEP, None, "")
    delta = metric - top.core_metric
    status = RowStatus.KEEP if sign_of(mode) * delta > 0 else RowStatus.DISCARD
    return Decision(status, delta, top.exp_id)


def circle(start: str, parent_of: Mapping[str, str]) -> list[str]:
    """Return the ancestors from `start` up to the first repetition; empty when they end."""
    walked: list[str] = []
    seen: set[str] = set()
    name = start
    while name:
        walked.append(name)
        if name in seen:
            return walked
        seen.add(name)
        name = parent_of.get(name, "")
    return []
