"""The lineage section: the ancestors of the best trial, and what was tried."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltune.lineage.query import best, chain, recent
from rltune.lineage.read import ReadResult
from rltune.lineage.row import LineageRow
from rltune.report.html.table import Cell, Table, marked, rounded, signed
from rltune.report.markdown import cut
from rltune.report.render import plural

MOST_ROWS = 60
"""Newest rows of the table; older ones are counted."""

MOST_LINKS = 12
"""Rows of the chain: the root, and the last ones before the best."""

_LONGEST = 300  # characters of a hypothesis or a note


def lineage_of(read: ReadResult | None, *, mode: str, path: Path) -> dict[str, Any]:
    """Return the chain to the best trial and the newest rows.

    `read` is None without a results.tsv at `path`; `mode` is `max` or `min`: what is better.
    """
    rows = read.rows if read is not None else ()
    left = len(rows) - MOST_ROWS
    older = f"; {plural(left, 'older row')} not shown" if left > 0 else ""
    caption = f"What was tried, newest first{older}"
    return {
        "file": path.name,
        "rows": rows,
        "unreadable": len(read.problems) if read is not None else 0,
        "summary": caption if older else f"All {plural(len(rows), 'row')} of results.tsv",
        "table": _table(rows, caption),
        **(_chain(rows, mode) if rows else {}),
    }


def _chain(rows: Sequence[LineageRow], mode: str) -> dict[str, Any]:
    top = best(rows, mode)
    if top.row is None:
        return {"chain": []}
    ancestors = chain(rows, top.row.exp_id)
    left = max(0, len(ancestors.rows) - MOST_LINKS)
    shown = [ancestors.rows[0], *ancestors.rows[1 + left :]]
    more = f" and {len(top.ties) - 5} more" if len(top.ties) > 5 else ""
    return {
        "chain": [_link(row) for row in shown],
        "left": left,
        "tied": ", ".join(row.exp_id for row in top.ties[:5]) + more,
        "skipped": len(ancestors.skipped),
        "missing": ancestors.missing,
        "cycle": " → ".join(ancestors.cycle[:8]),
    }


def _link(row: LineageRow) -> dict[str, Any]:
    return {
        "exp_id": row.exp_id,
        "status": row.status.value,
        "metric": rounded(row.core_metric),
        "delta": "" if row.delta_vs_best is None else signed(row.delta_vs_best),
        "hypothesis": cut(row.hypothesis, _LONGEST),
        "notes": cut(row.notes, _LONGEST),
    }


def _table(rows: Sequence[LineageRow], caption: str) -> Table:
    cells: list[list[Cell]] = [
        [
            marked("code", row.exp_id),
            row.status.value,
            rounded(row.core_metric),
            signed(row.delta_vs_best),
            cut(row.expected_delta, 40) or "–",
            cut(row.hypothesis, _LONGEST) or "–",
            cut(row.notes, _LONGEST) or "–",
        ]
        for row in recent(rows, MOST_ROWS)
    ]
    headers = ["id", "status", "metric", "vs best then", "expected", "hypothesis", "notes"]
    return Table(caption, headers, cells, numeric=(2, 3))
