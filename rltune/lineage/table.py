"""The lineage table results.tsv: strict when it is written, tolerant when it is read.

Every write holds a separate lock file from before the header check until the record is on
disk, so that any number of processes may append. What a killed writer left without its
newline goes to `results.tsv.torn` before the next record is written. A table that lacks columns
of today gets them first. The metric and its direction live in `results.meta.json` and in every
row: a table can never be read upside down.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from rltune.errors import Problem, StoreError
from rltune.lineage.query import Best, Chain, best, chain, circle, walk
from rltune.lineage.read import (
    LazyTable,
    Metric,
    ReadResult,
    header_problem,
    lines_by_id,
    meta_path,
    metrics_of,
    parents,
    read_body,
    read_metric,
    read_table,
    read_written,
    with_all_columns,
)
from rltune.lineage.row import (
    HEADER,
    LineageRow,
    encode_row,
    is_foreign,
    resolve_alias,
    row_problems,
)
from rltune.store.files import (
    fsync_dir,
    quarantine_tail,
    read_json,
    replacing,
    torn_tail,
    write_json_atomic,
    write_line,
)
from rltune.store.lock import file_lock

FORMAT = "rltune-lineage-1"
_ANOTHER = "Use another table for another metric."
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LineageStore:
    """One results.tsv with one metric and one direction.

    Args:
        path: The table; made by the first append.
        metric_name: Metric that core_metric holds.
        metric_mode: `max` or `min`.
        lock_timeout_s: How long a write waits for other writers.

    Raises:
        StoreError: The table was begun with another metric or direction.

    """

    path: Path
    metric_name: str
    metric_mode: str
    lock_timeout_s: float = field(default=60.0, compare=False)

    def __post_init__(self) -> None:
        """Check the direction against the sidecar."""
        if self.metric_mode not in ("max", "min"):
            raise StoreError(
                Problem(
                    "metric.mode", f"{self.metric_mode!r} is not a direction.", "Choose max or min."
                )
            )
        self._require_same_metric()

    @classmethod
    def open(cls, path: Path) -> "LineageStore":
        """Open a table that exists, with the metric it was begun with.

        Without its sidecar the rows tell, as long as they agree.

        Raises:
            StoreError: Neither the sidecar nor the rows name one metric and its direction.

        """
        metric = read_metric(path)
        return cls(path, metric.name, metric.mode)

    @property
    def metric(self) -> Metric:
        """What core_metric holds, and which way is better."""
        return Metric(self.metric_name, self.metric_mode)

    def read(self) -> ReadResult:
        """Read every whole row; report every other line. A missing table is empty."""
        return self._read(self._body())

    def read_written(self) -> ReadResult:
        """Read as `read` does; a row that is older than the row of its control has no parent."""
        return read_written(self._body(), self.path, self.metric)

    def best(self) -> Best:
        """Return the best row; fast however long the table is.

        Raises:
            StoreError: The header is damaged: a table that cannot be read has a best all the same.

        """
        return self._answer(LazyTable.best, lambda rows: best(rows, self.metric_mode))

    def chain(self, exp_id: str) -> Chain:
        """Walk the parents of a row; fast however long the table is.

        Raises:
            StoreError: No row has this id, or the header is damaged.

        """
        return self._answer(lambda table: walk(table, exp_id), lambda rows: chain(rows, exp_id))

    def _answer(
        self,
        from_table: Callable[[LazyTable], Answer],
        from_rows: Callable[[tuple[LineageRow, ...]], Answer],
    ) -> Answer:
        """Answer from the lines that a question needs, or from all rows where those cannot tell."""
        body = self._body()
        if b"\n" in body:
            if problem := header_problem(body, self.path):
                raise StoreError(problem)
            if (lines := lines_by_id(body)) is not None:
                with suppress(ValueError):  # a line that is needed is damaged, so it is no row
                    return from_table(LazyTable(lines, self.metric))
        return from_rows(self._read(body).rows)

    def _read(self, body: bytes) -> ReadResult:
        return read_body(body, self.path, self.metric)

    def _body(self) -> bytes:
        if not self.path.exists():
            return b""
        body = self.path.read_bytes()
        if body and not body.endswith(b"\n"):
            # Perhaps a writer is in the middle of a record: look again when none can be.
            with self.lock():
                body = self.path.read_bytes()
        return with_all_columns(body)

    def append(self, row: LineageRow) -> LineageRow:
        """Validate a row and append it; return it as written (aliases in its parents resolved).

        Raises:
            StoreError: A value is invalid, the id exists, a parent does not, the parents
                form a circle, or the file is not a lineage table.

        """
        return self.append_many((row,))[0]

    def append_many(self, rows: Iterable[LineageRow]) -> tuple[LineageRow, ...]:
        """Validate rows and append them under one lock, all or none; return them as written.

        A row may name one before it as its parent. Each is one write; the disk is waited for
        once, after the last.

        Raises:
            StoreError: As in `append`.

        """
        with self._writing() as (fd, body):
            return self._write(fd, body, rows)

    def record(self, build: Callable[[tuple[LineageRow, ...]], LineageRow]) -> LineageRow:
        """Append the row that `build` makes from the rows of now; nobody else writes in between.

        Keep or discard must be decided against the best row at record time; deciding first
        and appending later lets two concurrent trials both beat the same best.
        """
        with self._writing() as (fd, body):
            row = build(self._read(body).rows)
            return self._write(fd, body, (row,))[0]

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock that every write holds; the folder of the table is made for it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return file_lock(
            self.path.with_name(self.path.name + ".lock"), timeout_s=self.lock_timeout_s
        )

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, bytes]]:
        """Hold the lock; yield the open file, header whole and tail mended, and its content."""
        with self.lock():
            self._require_same_metric()
            if not meta_path(self.path).exists():
                self._begin()
            _add_columns(self.path)
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                yield fd, _mended(fd, self.path)
            finally:
                os.close(fd)

    def _begin(self) -> None:
        """Write the sidecar; without one, the rows that are there must hold this metric."""
        body = read_table(self.path) if self.path.exists() else b""
        if others := metrics_of(body) - {self.metric}:
            held = " and ".join(f"{other.name!r} ({other.mode})" for other in sorted(others))
            mine = f"{self.metric_name!r} ({self.metric_mode})"
            what = f"its rows hold {held}, not {mine}, and its sidecar is missing."
            raise StoreError(Problem(str(self.path), what, action=_ANOTHER))
        write_json_atomic(meta_path(self.path), {"format": FORMAT} | self._named)

    def _write(self, fd: int, body: bytes, rows: Iterable[LineageRow]) -> tuple[LineageRow, ...]:
        rows, parent_of = tuple(rows), dict(parents(body))
        if again := parent_of.keys() & {row.exp_id for row in rows}:
            for name in again - {row.exp_id for row in self._read(body).rows}:
                del parent_of[name]  # its line is damaged, so its row may be written again
        checked = []
        for row in rows:
            checked.append(self._checked(row, parent_of))
            parent_of[checked[-1].exp_id] = checked[-1].parent_exp
        before = os.fstat(fd).st_size
        try:
            for row in checked:
                write_line(fd, encode_row(row).encode() + b"\n", self.path)
            os.fsync(fd)
        except BaseException:  # a second Ctrl-C, too: all of them or none
            os.ftruncate(fd, before)
            raise
        return tuple(checked)

    def _checked(self, row: LineageRow, parent_of: Mapping[str, str]) -> LineageRow:
        """Return the row with aliases resolved, or raise with everything that is wrong."""
        complaints = row_problems(row)
        if complaints:
            raise self._refusal(row, complaints)
        for name in ("metric_name", "metric_mode"):
            if getattr(row, name) != getattr(self, name):
                complaints.append(
                    f"{name}: {getattr(row, name)!r}; this table holds {getattr(self, name)!r}"
                )
        if row.exp_id in parent_of:
            complaints.append("exp_id: a row with this id exists; a new attempt needs a new id")
        row = replace(
            row,
            parent_exp=resolve_alias(row.parent_exp, parent_of),
            baseline_exp=resolve_alias(row.baseline_exp, parent_of),
        )
        for name in ("parent_exp", "baseline_exp"):
            value = getattr(row, name)
            is_elsewhere = name == "parent_exp" and is_foreign(value)
            if value and value not in parent_of and not is_elsewhere:
                what = f"{value!r} is not in this table; leave it empty for a root"
                complaints.append(f"{name}: {what}")
        if around := circle(row.parent_exp, parent_of):
            complaints.append(f"parent_exp: its ancestors form a circle: {' -> '.join(around)}")
        if complaints:
            raise self._refusal(row, complaints)
        return row

    def _refusal(self, row: LineageRow, complaints: list[str]) -> StoreError:
        return StoreError([Problem(f"{self.path}: {row.exp_id}", one) for one in complaints])

    @property
    def _named(self) -> dict[str, str]:
        return {"metric_name": self.metric_name, "metric_mode": self.metric_mode}

    def _require_same_metric(self) -> None:
        path = meta_path(self.path)
        if not path.exists():
            return
        meta = read_json(path)
        mine = self._named
        theirs = {name: meta.get(name) for name in mine} if isinstance(meta, dict) else meta
        if theirs != mine:
            what = f"this table was created with {theirs}, not with {mine}."
            raise StoreError(Problem(str(path), what, action=_ANOTHER))


def _add_columns(path: Path) -> None:
    """Rewrite a table that lacks columns of today, so that all its rows have the same ones.

    Call it under the lock: what reads meanwhile has the table before or after.
    """
    body = path.read_bytes() if path.exists() else b""
    whole = with_all_columns(body)
    if whole != body:
        with replacing(path) as file:
            file.write(whole)


def _mended(fd: int, path: Path) -> bytes:
    """Return the content of the table after moving a torn tail out and writing a missing header."""
    if tail := torn_tail(fd):
        quarantine_tail(fd, path, tail)
    body = os.pread(fd, os.fstat(fd).st_size, 0)
    if not body:
        body = HEADER.encode() + b"\n"
        write_line(fd, body, path)
        fsync_dir(path.parent)
    elif problem := header_problem(body, path):
        raise StoreError(problem)
    return body


def rows_in(table: Path) -> tuple[LineageRow, ...]:
    """Return the rows of a table, none of one that is missing; raises StoreError."""
    return LineageStore.open(table).read().rows if table.is_file() else ()
