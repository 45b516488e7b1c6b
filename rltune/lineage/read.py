"""Reading a lineage table: its rows, and the lines that are not rows.

`parse` decodes everything. `LazyTable` decodes only the rows that choosing and walking need, so
that a table of a hundred thousand rows answers in a fraction of a second.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rltune.errors import Problem, StoreError
from rltune.lineage.parents import control_of, lacks_control, with_parent, with_parents
from rltune.lineage.query import ELIGIBLE, Best, best
from rltune.lineage.row import (
    COLUMNS,
    HEADER,
    LineageRow,
    columns_of,
    decode_row,
    encode_row,
    escape,
)
from rltune.store.files import read_json
from rltune.types import RowStatus

_PARENT = COLUMNS.index("parent_exp")
_STATUS = COLUMNS.index("status")
_SWEEP = COLUMNS.index("sweep")
_SEED = COLUMNS.index("seed")
_METRIC = COLUMNS.index("core_metric")
_NAME = COLUMNS.index("metric_name")
_MODE = COLUMNS.index("metric_mode")
_HEADER_LINE = HEADER.encode()
_SKIPPED = "The row is skipped."
_MOST_NAMED = 100  # characters of a column that is none of a header


def meta_path(path: Path) -> Path:
    """Return the sidecar of a table: `results.tsv` has `results.meta.json`."""
    return path.with_suffix(".meta.json")


class Metric(NamedTuple):
    """What core_metric holds in a table, and which way is better."""

    name: str
    mode: str  # max or min


class ReadResult(NamedTuple):
    """The rows of a table in file order, and the lines that are not rows."""

    rows: tuple[LineageRow, ...]
    problems: tuple[Problem, ...]


class BadLine(NamedTuple):
    """A physical line that is not a row of its table."""

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


class LazyTable(Mapping[str, LineageRow]):
    """The rows of a table by id, each decoded when asked for; ValueError for a damaged one."""

    def __init__(self, lines: Mapping[str, bytes], metric: Metric) -> None:
        self._lines = lines
        self._metric = metric

    def __getitem__(self, exp_id: str) -> LineageRow:
        """Return the row."""
        row = self._written(self._lines[exp_id])
        return with_parent(row, self._control_of(row)) if lacks_control(row) else row

    def __contains__(self, exp_id: object) -> bool:
        """Whether a line begins with this id."""
        return exp_id in self._lines

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids in file order."""
        return iter(self._lines)

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._lines)

    def best(self) -> Best:
        """Return the best row and its ties; only these are decoded.

        Raises:
            ValueError: One of them is damaged.

        """
        mode, reached = self._metric.mode, scores(self._lines, self._metric)
        top = (max if mode == "max" else min)(reached.values(), default=None)
        return best([self[exp_id] for exp_id, value in reached.items() if value == top], mode)

    def _written(self, line: bytes) -> LineageRow:
        row = decode_row(line.decode())
        _require_metric(row, self._metric)
        return row

    def _control_of(self, row: LineageRow) -> LineageRow | None:
        lines = _baselines(self._lines.values(), sweep=row.sweep, seed=row.seed)
        return control_of(row, map(self._written, lines))


def read_table(path: Path) -> bytes:
    """Return the content of a table with the columns of today; see `with_all_columns`."""
    return with_all_columns(path.read_bytes())


def with_all_columns(body: bytes) -> bytes:
    """Return a table with the columns that came after it was begun, which say nothing in its rows.

    All else stays as it is: a table of today, a file that is no table, and lines that are not rows.
    """
    header, newline, rest = body.partition(b"\n")
    columns = None if header == _HEADER_LINE else columns_of(header.decode(errors="replace"))
    if columns is None or not newline:
        return body
    lines = [_with_all_columns(line, columns) for line in rest.split(b"\n")]
    return b"\n".join([_HEADER_LINE, *lines])


def _with_all_columns(line: bytes, columns: Sequence[str]) -> bytes:
    try:
        return encode_row(decode_row(line.decode(), columns)).encode()
    except ValueError:
        return line


def header_problem(body: bytes, path: Path) -> Problem | None:
    """Return why the first line is not the header of a lineage table; None when it is."""
    line = body.split(b"\n", 1)[0].decode(errors="replace")
    if line == HEADER:
        return None
    given = line.split("\t")
    if later := given[len(COLUMNS) :] if line.startswith(f"{HEADER}\t") else []:
        columns = "column" if len(later) == 1 else "columns"
        what = f"has the {columns} {', '.join(map(repr, later))}, unknown to this rltune."
        action = "Use the rltune that wrote it, or a later one."
        return Problem(f"{path}:1", what, action=action)
    pairs = zip(given, COLUMNS, strict=False)
    where = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(given), len(COLUMNS)))
    shown = repr(given[where][:_MOST_NAMED]) if where < len(given) else "missing"
    expected = repr(COLUMNS[where]) if where < len(COLUMNS) else "the end"
    return Problem(
        f"{path}:1",
        f"this is not an rltune lineage table: column {where + 1} is {shown}, expected {expected}.",
        action="`rltune lineage repair` mends a damaged header over whole rows; `rltune lineage "
        "import` takes tables of other tools.",
    )


def read_body(body: bytes, path: Path, metric: Metric | None) -> ReadResult:
    """Read the rows of a table, of today or an earlier day, each with its parent.

    A metric of None takes rows of any.
    """
    read = read_written(body, path, metric)
    return read._replace(rows=with_parents(read.rows))


def read_if_there(path: Path) -> ReadResult | None:
    """Read a table of any metric; None where there is none."""
    return read_body(path.read_bytes(), path, None) if path.is_file() else None


def read_written(body: bytes, path: Path, metric: Metric | None) -> ReadResult:
    """Read a table as `read_body` does, its rows as they were written.

    Those that are older than the row of their control name no parent.
    """
    body = with_all_columns(body)
    if not body:
        return ReadResult((), ())
    if b"\n" in body and (problem := header_problem(body, path)):
        return ReadResult((), (problem,))
    parsed = parse(body, metric)
    return ReadResult(parsed.rows, tuple(bad.problem(path) for bad in parsed.bad))


def parse(body: bytes, metric: Metric | None, *, has_header: bool = True) -> Parsed:
    """Decode every line. A row of another metric is bad: the two never compare."""
    *lines, tail = body.split(b"\n")
    rows: dict[str, LineageRow] = {}
    kept: list[bytes] = []
    bad: list[BadLine] = []
    skipped = 1 if has_header else 0
    for number, line in enumerate(lines[skipped:], start=1 + skipped):
        try:
            if line == _HEADER_LINE:
                raise ValueError("a second header; two writers created this table")
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


def lines_by_id(body: bytes) -> dict[str, bytes] | None:
    """Return id -> line; None when an id comes twice.

    Then only `parse` can tell which of the two counts: it depends on whether the first is whole.
    """
    lines = body.split(b"\n")[1:-1]
    by_id = {line.partition(b"\t")[0].decode(errors="replace"): line for line in lines}
    return by_id if len(by_id) == len(lines) else None


def scores(lines: Mapping[str, bytes], metric: Metric) -> dict[str, float]:
    """Return id -> core_metric of the kept and baseline rows of a metric; no row is decoded."""
    theirs = (escape(metric.name).encode(), metric.mode.encode())
    statuses = {status.value.encode() for status in ELIGIBLE}
    reached = {}
    for exp_id, line in lines.items():
        cells = line.split(b"\t")
        if len(cells) != len(COLUMNS) or cells[_STATUS] not in statuses:
            continue
        if (cells[_NAME], cells[_MODE]) == theirs and (value := _float(cells[_METRIC])) is not None:
            reached[exp_id] = value
    return reached


def _float(cell: bytes) -> float | None:
    """Return a finite number; None for anything else."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _baselines(lines: Iterable[bytes], *, sweep: str, seed: int | None) -> Iterator[bytes]:
    """Yield the lines of finished controls of a sweep and seed; no row is decoded."""
    wanted = (RowStatus.BASELINE.encode(), escape(sweep).encode(), str(seed).encode())
    for line in lines:
        cells = line.split(b"\t")
        is_whole = len(cells) == len(COLUMNS)
        if is_whole and (cells[_STATUS], cells[_SWEEP], cells[_SEED]) == wanted:
            yield line


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
    body = read_table(path)
    if problem := header_problem(body, path):
        raise StoreError(problem)
    metrics = sorted(metrics_of(body))
    if len(metrics) == 1:
        return metrics[0]
    named = " and ".join(f"{one.name!r} ({one.mode})" for one in metrics) or "none"
    example = '{"metric_name": "heldout/success_rate", "metric_mode": "max"}'
    what = f"the sidecar is missing and the rows name {named}."
    raise StoreError(Problem(str(meta), what, action=f"Write it: {example}"))
