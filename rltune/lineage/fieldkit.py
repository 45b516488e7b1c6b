r"""fieldkit's lineage table: 17 columns in csv quotes, so one record may span several lines.

Read tolerantly: a damaged record is reported with its line, and the next one is read. The file does
not store which way its metric is better; whoever imports it must say.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rltune.lineage.importing import ForeignTable, read_text, wrong_header
from rltune.lineage.read import Metric
from rltune.lineage.row import COLUMNS, LineageRow, parse_status
from rltune.types import RowStatus

FIELDKIT_COLUMNS = COLUMNS[:17]
_FLOATS = ("core_metric", "val_bpb", "delta_vs_best", "train_s", "total_s")
_MOST_LINES = 2000  # of one record
_QUOTED = re.compile(r'[\t\r\n"]')
# Ours that fieldkit does not know, under the nearest of its own; the notes keep the name.
_FIELDKIT_STATUS = {
    RowStatus.PRUNED: RowStatus.DISCARD,
    RowStatus.PREEMPTED: RowStatus.HARNESS_ABORT,
    RowStatus.DIVERGED: RowStatus.CRASH,
}
_MARK = re.compile(r"\[rltune status (\w+)\] ?")
_GATE = "heldout-gate"  # specialist of the held-out rows that fieldkit's RL loop writes
_POOL_ID = re.compile(r"rl-\d+")


def to_fieldkit(rows: Iterable[LineageRow]) -> str:
    """Return the table in fieldkit's dialect: csv quotes, so a record may span several lines."""
    lines = ["\t".join(FIELDKIT_COLUMNS)]
    lines += ["\t".join(_quote(cell) for cell in _fieldkit_cells(row)) for row in rows]
    return "\n".join(lines) + "\n"


def _fieldkit_cells(row: LineageRow) -> Iterator[str]:
    status = _FIELDKIT_STATUS.get(row.status, row.status)
    mark = "" if status is row.status else f"[rltune status {row.status}] "
    row = replace(row, status=status, notes=mark + row.notes if row.notes else mark.rstrip())
    for name in FIELDKIT_COLUMNS:
        value = getattr(row, name)
        yield "" if value is None else repr(float(value)) if name in _FLOATS else str(value)


def _quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _QUOTED.search(cell) else cell


def read_fieldkit(path: Path, metric: Metric) -> ForeignTable:
    """Read a fieldkit table.

    In a table that its RL loop wrote, rows of the training pool and of the held-out gate share
    core_metric; here only the gate's keep it, and the pool's go to pool_metric.

    Args:
        path: The table.
        metric: What its core_metric holds, and which way is better.

    Raises:
        StoreError: It is missing, or its header is another.

    """
    lines = read_text(path).split("\n")
    columns = lines[0].rstrip("\r").split("\t")
    if tuple(columns) != FIELDKIT_COLUMNS:
        raise wrong_header(path, columns, tool="a fieldkit", expected=", ".join(FIELDKIT_COLUMNS))
    table = ForeignTable(path)
    for number, cells in _csv_records(lines):
        with table.record(number):
            if cells is None:
                raise ValueError("a quote is never closed")
            table.rows.append((number, _row(cells, metric)))
    if any(row.specialist == _GATE for _, row in table.rows):
        table.rows = [(number, _split(row)) for number, row in table.rows]
    return table


def _row(cells: Sequence[str], metric: Metric) -> LineageRow:
    if len(cells) != len(FIELDKIT_COLUMNS):
        raise ValueError(f"{len(cells)} columns instead of {len(FIELDKIT_COLUMNS)}")
    values: dict[str, object] = dict(zip(FIELDKIT_COLUMNS, cells, strict=True))
    notes = str(values["notes"])
    status = parse_status(str(values["status"]))
    if mark := _MARK.match(notes):
        status, notes = parse_status(mark[1]), notes[mark.end() :]
    for name in _FLOATS:
        number = _float(name, str(values[name]))
        if number is not None and not math.isfinite(number):
            notes, number = f"{notes} [{name} was {number}]".strip(), None
        values[name] = number
    values |= {"status": status, "notes": notes}
    values |= {"metric_name": metric.name, "metric_mode": metric.mode}
    return LineageRow(**values)  # type: ignore[arg-type]


def _float(name: str, cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        raise ValueError(f"{name}: {cell!r} is not a number") from None


def _split(row: LineageRow) -> LineageRow:
    """Return a row of the RL loop with its metric in the column of the gate or of the pool."""
    if row.specialist == _GATE:
        return replace(row, heldout_metric=row.core_metric)
    if _POOL_ID.fullmatch(row.exp_id):
        return replace(row, pool_metric=row.core_metric, core_metric=None)
    return row


def _csv_records(lines: Sequence[str]) -> Iterator[tuple[int, list[str] | None]]:
    """Yield the records after the header.

    A quote that never closes would swallow the rest of the file; such a line is a record of its
    own, and reading goes on with the next.
    """
    i = 1
    while i < len(lines):
        if lines[i] in ("", "\r"):
            i += 1
            continue
        end = i + 1
        cells = _split_csv(lines[i])
        while cells is None and end < len(lines) and end - i < _MOST_LINES:
            end += 1
            cells = _split_csv("\n".join(lines[i:end]))
        if end > i + 1 and (cells is None or len(cells) != len(FIELDKIT_COLUMNS)):
            cells, end = None, i + 1
        yield i + 1, cells
        i = end


def _split_csv(text: str) -> list[str] | None:
    """Return the cells of a record; None while a quote is open."""
    cells, i = [], 0
    text = text.removesuffix("\r")
    while True:
        if text.startswith('"', i):
            end = _closing(text, i + 1)
            if end < 0:
                return None
            stop = text.find("\t", end)
            rest = text[end + 1 : stop if stop >= 0 else len(text)]
            cells.append(text[i + 1 : end].replace('""', '"') + rest)
        else:
            stop = text.find("\t", i)
            cells.append(text[i : stop if stop >= 0 else len(text)])
        if stop < 0:
            return cells
        i = stop + 1


def _closing(text: str, start: int) -> int:
    """Return where the quoted cell ends that begins before `start`; -1 when it does not."""
    i = text.find('"', start)
    while i >= 0 and text.startswith('"', i + 1):
        i = text.find('"', i + 2)
    return i
