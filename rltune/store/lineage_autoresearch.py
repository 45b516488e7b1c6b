"""The results.tsv of karpathy's autoresearch: commit, val_bpb, memory_gb, status, description."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rltune.store.lineage_import import Found, Reader, read_text, require_header
from rltune.store.lineage_query import decide_status
from rltune.store.lineage_read import Metric
from rltune.store.lineage_row import LineageRow, parse_status
from rltune.types import RowStatus

AUTORESEARCH_COLUMNS = ("commit", "val_bpb", "memory_gb", "status", "description")
AUTORESEARCH_METRIC = Metric("val_bpb", "min")


def read_autoresearch(path: Path) -> Found:
    """Read a table of autoresearch.

    A crash is written there as 0.000000, which would be the best of all; here it has no metric.
    The parent of a row is the last kept row before it, as the git branch had it.

    Raises:
        StoreError: It is missing, or its header is another.

    """
    lines = read_text(path).split("\n")
    require_header(path, lines[0], AUTORESEARCH_COLUMNS, "autoresearch")
    reader = Reader(path)
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            with reader.record(number):
                reader.add(number, _row(line, [row for _, row in reader.found.rows]))
    return reader.found


def _row(line: str, before: Sequence[LineageRow]) -> LineageRow:
    cells = line.rstrip("\r").split("\t", len(AUTORESEARCH_COLUMNS) - 1)
    if len(cells) != len(AUTORESEARCH_COLUMNS):
        raise ValueError(f"{len(cells)} columns instead of {len(AUTORESEARCH_COLUMNS)}")
    commit, bpb, memory, status, description = (cell.strip() for cell in cells)
    ended, value, gigabytes = parse_status(status.lower()), _measured(bpb), _measured(memory)
    decision = decide_status(value, before, AUTORESEARCH_METRIC.mode)
    kept = [row.exp_id for row in before if row.status is RowStatus.KEEP]
    seen = Counter(row.commit for row in before)[commit]
    return LineageRow(
        exp_id=commit if not seen else f"{commit}.{seen + 1}",
        specialist="autoresearch",
        parent_exp=kept[-1] if kept else "",
        baseline_exp=decision.baseline_exp,
        hypothesis=description,
        status=ended,
        core_metric=value,
        val_bpb=value,
        delta_vs_best=decision.delta_vs_best,
        notes="" if gigabytes is None else f"memory {gigabytes:g} GB",
        commit=commit,
        metric_name=AUTORESEARCH_METRIC.name,
        metric_mode=AUTORESEARCH_METRIC.mode,
    )


def _measured(cell: str) -> float | None:
    """Return a number; None for its sentinel 0.0, for no number and for one that is not finite."""
    try:
        value = float(cell or 0)
    except ValueError:
        raise ValueError(f"{cell!r} is not a number") from None
    return value if value != 0.0 and math.isfinite(value) else None
