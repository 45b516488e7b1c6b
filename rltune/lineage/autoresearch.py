"""The results.tsv of karpathy's autoresearch and its kin: a commit, a metric, how it ended, why.

`commit val_bpb memory_gb status description`; the kin measure something else in the second column,
and have other columns or none before `status`.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rltune.lineage.importing import ForeignTable, read_text, wrong_header
from rltune.lineage.query import decide_status
from rltune.lineage.read import Metric
from rltune.lineage.row import LineageRow, parse_status
from rltune.types import RowStatus

VAL_BPB = Metric("val_bpb", "min")


def autoresearch_columns(path: Path) -> list[str]:
    """Return the columns of a table; the second one names its metric.

    Raises:
        StoreError: It is missing, or not of this kind.

    """
    columns = read_text(path).partition("\n")[0].rstrip("\r").split("\t")
    if len(columns) < 4 or (columns[0], *columns[-2:]) != ("commit", "status", "description"):
        expected = "commit, a metric, any others, status, description"
        raise wrong_header(path, columns, tool="an autoresearch", expected=expected)
    return columns


def read_autoresearch(path: Path, metric: Metric = VAL_BPB) -> ForeignTable:
    """Read a table of autoresearch.

    A crash is written there as 0.000000, which would be the best of all; here it has no metric.
    The parent of a row is the last kept row before it, as the git branch had it. What was
    discarded there stands under the commit that it departed from, so ids get a number.

    Args:
        path: The table.
        metric: What its second column holds, and which way is better.

    Raises:
        StoreError: It is missing, or not of this kind.

    """
    columns = autoresearch_columns(path)
    table = ForeignTable(path)
    for number, line in enumerate(read_text(path).split("\n")[1:], start=2):
        if line.strip():
            with table.record(number):
                before = [row for _, row in table.rows]
                table.rows.append((number, _row(line, columns, metric, before)))
    return table


def _row(
    line: str, columns: Sequence[str], metric: Metric, before: Sequence[LineageRow]
) -> LineageRow:
    cells = [cell.strip() for cell in line.rstrip("\r").split("\t", len(columns) - 1)]
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} columns instead of {len(columns)}")
    commit, value, ended = cells[0], _measured(cells[1]), parse_status(cells[-2].lower())
    extras = [f"{name} {cell}" for name, cell in zip(columns[2:-2], cells[2:-2], strict=True)]
    decision = decide_status(value, before, metric.mode)
    kept = [row.exp_id for row in before if row.status is RowStatus.KEEP]
    seen = Counter(row.commit for row in before)[commit]
    return LineageRow(
        exp_id=commit if not seen else f"{commit}.{seen + 1}",
        specialist="autoresearch",
        parent_exp=kept[-1] if kept else "",
        baseline_exp=decision.baseline_exp,
        hypothesis=cells[-1],
        status=ended,
        core_metric=value,
        val_bpb=value if metric.name == VAL_BPB.name else None,
        delta_vs_best=decision.delta_vs_best,
        notes=", ".join(extras),
        commit=commit,
        metric_name=metric.name,
        metric_mode=metric.mode,
    )


def _measured(cell: str) -> float | None:
    """Return a number; None for its sentinel 0.0, for no number and for one that is not finite."""
    try:
        value = float(cell or 0)
    except ValueError:
        raise ValueError(f"{cell!r} is not a number") from None
    return value if value != 0.0 and math.isfinite(value) else None
