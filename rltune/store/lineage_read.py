"""What the bytes of a lineage table say: rows, and the lines that are none.

`parse` decodes everything. `scan` looks at the few columns that choose a row and leaves the rest
as it is: a table of a hundred thousand rows answers in a fraction of a second.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rltune.errors import Problem, StoreError
from rltune.store.files import read_json
from rltune.store.lineage_row import COLUMNS, HEADER, LineageRow, decode_row, escape
from rltune.types import RowStatus

_PARENT = COLUMNS.index("parent_exp")
_STATUS = COLUMNS.index("status")
_METRIC = COLUMNS.index("core_metric")
_NAME = COLUMNS.index("metric_name")
_MODE = COLUMNS.index("metric_mode")
_HEADER_LINE = HEADER.encode()
_SKIPPED = "The row is skipped."


def meta_path(path: Path) -> Path:
    """Return the sidecar of a table: `results.tsv` has `results.meta.json`."""
    return path.with_suffix(".meta.json")


class Metric(NamedTuple):
    """What core_metric holds in a table, and which way is better."""

    name: str
    mode: str  # max or min


class ReadResult(NamedTuple):
    """The rows of a table in file order, and the lines that are no rows."""

    rows: tuple[LineageRow, ...]
    problems: tuple[Problem, ...]


class BadLine(NamedTuple):
    """A physical line that is no row of its table."""

    number: int  # from 1, the header's
    content: bytes
    why: str

    def problem(self, path: Path) -> Problem:
        """Return it as a problem of the file."""
        return Problem(f"{path}:{self.number}", f"{self.why}.", action=_SKIPPED)


class Parsed(NamedTuple):
    """The rows of a table, the lines that hold them, and the lines that hold none."""

    rows: tuple[LineageRow, ...]
    lines: tuple[bytes, ...]  # those of `rows`, without newline
    bad: tuple[BadLine, ...]


class Glimpse(NamedTuple):
    """The columns of a row that choose it, and its line."""

    exp_id: str
    parent_exp: str
    status: RowStatus
    core_metric: float | None
    line: bytes

    def row(self) -> LineageRow:
        """Return the whole row; ValueError when another column is damaged."""
        return decode_row(self.line.decode())


def header_problem(body: bytes, path: Path) -> Problem | None:
    """Return why the first line is not the header of a lineage table; None when it is."""
    line = body.split(b"\n", 1)[0].decode(errors="replace")
    if line == HEADER:
        return None
    given = line.split("\t")
    pairs = zip(given, COLUMNS, strict=False)
    where = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(COLUMNS)))
    shown = repr(given[where]) if where < len(given) else "missing"
    expected = repr(COLUMNS[where]) if where < len(COLUMNS) else "the end"
    return Problem(
        f"{path}:1",
        f"this is no rltune lineage table: column {where + 1} is {shown} instead of {expected}.",
        action="A fieldkit table comes in with `rltune lineage import`; else use another path.",
    )


def read_body(body: bytes, path: Path, metric: Metric | None) -> ReadResult:
    """Read the rows of a table; None takes rows of any metric."""
    if not body:
        return ReadResult((), ())
    if b"\n" in body and (problem := header_problem(body, path)):
        return ReadResult((), (problem,))
    found = parse(body, metric)
    return ReadResult(found.rows, tuple(bad.problem(path) for bad in found.bad))


def parse(body: bytes, metric: Metric | None, *, has_header: bool = True) -> Parsed:
    """Decode every line. A row of another metric is no row of this table: it never compares."""
    *lines, tail = body.split(b"\n")
    rows: dict[str, LineageRow] = {}
    kept: list[bytes] = []
    bad: list[BadLine] = []
    skipped = 1 if has_header else 0
    for number, line in enumerate(lines[skipped:], start=1 + skipped):
        try:
            if line == _HEADER_LINE:
                raise ValueError("a second header; two writers began this table")
            row = decode_row(line.decode())
            _require_metric(row, metric)
            if row.exp_id in rows:
                raise ValueError(f"exp_id: {row.exp_id!r} is a duplicate")
        except ValueError as error:
            bad.append(BadLine(number, line, str(error)))
            continue
        rows[row.exp_id] = row
        kept.append(line)
    if tail:
        why = f"a torn last line of {len(tail)} bytes; its writer was killed"
        bad.append(BadLine(len(lines) + 1, tail, why))
    return Parsed(tuple(rows.values()), tuple(kept), tuple(bad))


def _require_metric(row: LineageRow, metric: Metric | None) -> None:
    mine = Metric(row.metric_name, row.metric_mode)
    if metric is not None and mine != metric:
        raise ValueError(
            f"it holds {mine.name!r} ({mine.mode or 'no direction'}), this table "
            f"{metric.name!r} ({metric.mode}); the two are never compared"
        )


def scan(body: bytes, metric: Metric) -> list[Glimpse] | None:
    """Return the rows as far as choosing needs them; None when only `parse` can tell.

    That is when an id comes twice: which of the two counts depends on whether the first is whole.
    """
    found: list[Glimpse] = []
    theirs = (escape(metric.name).encode(), metric.mode.encode())
    statuses = {status.value.encode(): status for status in RowStatus}
    for line in body.split(b"\n")[1:-1]:
        cells = line.split(b"\t")
        if len(cells) != len(COLUMNS) or (cells[_NAME], cells[_MODE]) != theirs:
            continue
        status, number = statuses.get(cells[_STATUS]), _float(cells[_METRIC])
        if status is None or (number is not None and math.isnan(number)):
            continue
        name, parent = cells[0].decode(errors="replace"), cells[_PARENT].decode(errors="replace")
        found.append(Glimpse(name, parent, status, number, line))
    return found if len({glimpse.exp_id for glimpse in found}) == len(found) else None


def _float(cell: bytes) -> float | None:
    """Return a number, None for an empty cell, and NaN for what is no finite number."""
    try:
        value = float(cell) if cell else None
    except ValueError:
        return math.nan
    return value if value is None or math.isfinite(value) else math.nan


def parents(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield (exp_id, parent_exp) of each line; cheap enough to do at every append."""
    for line in body.split(b"\n")[1:-1]:
        cells = line.split(b"\t", _PARENT + 1)
        if len(cells) > _PARENT:
            yield cells[0].decode(errors="replace"), cells[_PARENT].decode(errors="replace")


def metrics_of(body: bytes) -> set[Metric]:
    """Return the metrics that the rows of a table hold."""
    return {Metric(row.metric_name, row.metric_mode) for row in parse(body, None).rows}


def read_metric(path: Path) -> Metric:
    """Return the metric of a table that exists.

    Raises:
        StoreError: The table is missing, or neither its sidecar nor its rows name one metric.

    """
    meta = meta_path(path)
    if meta.exists() or not path.exists():
        data = read_json(meta)
        try:
            return Metric(data["metric_name"], data["metric_mode"])
        except (KeyError, TypeError) as error:
            raise StoreError(
                Problem(str(meta), f"is not a lineage sidecar ({error!r}).")
            ) from error
    body = path.read_bytes()
    if problem := header_problem(body, path):
        raise StoreError(problem)
    found = sorted(metrics_of(body))
    if len(found) == 1:
        return found[0]
    named = " and ".join(f"{one.name!r} ({one.mode})" for one in found) or "none"
    example = '{"metric_name": "heldout/success_rate", "metric_mode": "max"}'
    what = f"the sidecar is missing and the rows name {named}."
    raise StoreError(Problem(str(meta), what, action=f"Write it: {example}"))
