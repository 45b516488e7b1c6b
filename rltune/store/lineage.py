"""The lineage table results.tsv: strict when it is written, tolerant when it is read.

Every write holds a separate lock file from before the header check until the record is on
disk, so that any number of processes may append. What a killed writer left without its
newline goes to `results.tsv.torn` before the next record is written. The metric and its
direction live in `results.meta.json`: a table can never be read upside down.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rltune.errors import Problem, StoreError
from rltune.store.files import (
    fsync_dir,
    quarantine_tail,
    read_json,
    torn_tail,
    write_json_atomic,
    write_line,
)
from rltune.store.lineage_row import (
    COLUMNS,
    HEADER,
    LineageRow,
    decode_row,
    encode_row,
    row_problems,
)
from rltune.store.lock import file_lock

_FORMAT = "rltune-lineage-1"
_PARENT = COLUMNS.index("parent_exp")
_SKIPPED = "The row is skipped."


class ReadResult(NamedTuple):
    """The rows of a table in file order, and the lines that are no rows."""

    rows: tuple[LineageRow, ...]
    problems: tuple[Problem, ...]


def meta_path(path: Path) -> Path:
    """Return the sidecar of a table: `results.tsv` has `results.meta.json`."""
    return path.with_suffix(".meta.json")


def resolve_alias(name: str, ids: Mapping[str, object]) -> str:
    """Return the id that `name` means.

    Agents echo ids with the `exp_` prefix that renderings put before them.
    """
    bare = name.removeprefix("exp_")
    return bare if name not in ids and bare in ids else name


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
        """Open a table that exists, with the metric it was begun with."""
        meta = read_json(meta_path(path))
        try:
            return cls(path, meta["metric_name"], meta["metric_mode"])
        except (KeyError, TypeError) as error:
            raise StoreError(
                Problem(str(meta_path(path)), f"is not a lineage sidecar ({error!r}).")
            ) from error

    def read(self) -> ReadResult:
        """Read every whole row; name every line that is none. A missing table is empty."""
        if not self.path.exists():
            return ReadResult((), ())
        body = self.path.read_bytes()
        if body and not body.endswith(b"\n"):
            # Perhaps a writer is in the middle of a record: look again when none can be.
            with self._lock():
                body = self.path.read_bytes()
        return _parse(body, self.path)

    def append(self, row: LineageRow) -> LineageRow:
        """Validate a row and append it; return it as written (aliases in its parents resolved).

        Raises:
            StoreError: A value is invalid, the id exists, a parent does not, the parents
                form a circle, or the file is not a lineage table.

        """
        with self._writing() as (fd, body):
            return self._write(fd, body, row)

    def record(self, build: Callable[[tuple[LineageRow, ...]], LineageRow]) -> LineageRow:
        """Append the row that `build` makes from the rows of now; nobody else writes in between.

        Keep or discard must be decided against the best row at record time; deciding first
        and appending later lets two concurrent trials both beat the same best.
        """
        with self._writing() as (fd, body):
            return self._write(fd, body, build(_parse(body, self.path).rows))

    def _lock(self) -> AbstractContextManager[None]:
        return file_lock(
            self.path.with_name(self.path.name + ".lock"), timeout_s=self.lock_timeout_s
        )

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, bytes]]:
        """Hold the lock; yield the open file, header whole and tail mended, and its content."""
        with self._lock():
            self._require_same_metric()
            if not meta_path(self.path).exists():
                mine = {"metric_name": self.metric_name, "metric_mode": self.metric_mode}
                write_json_atomic(meta_path(self.path), {"format": _FORMAT} | mine)
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                yield fd, _mended(fd, self.path)
            finally:
                os.close(fd)

    def _write(self, fd: int, body: bytes, row: LineageRow) -> LineageRow:
        row = self._checked(row, dict(_ids(body)))
        write_line(fd, encode_row(row).encode() + b"\n", self.path)
        os.fsync(fd)
        return row

    def _checked(self, row: LineageRow, parent_of: Mapping[str, str]) -> LineageRow:
        """Return the row with aliases resolved, or raise with everything that is wrong."""
        found = row_problems(row)
        if found:
            raise StoreError(
                [Problem(f"{self.path}: {row.exp_id}", complaint) for complaint in found]
            )
        for name in ("metric_name", "metric_mode"):
            if getattr(row, name) != getattr(self, name):
                found.append(
                    f"{name}: {getattr(row, name)!r}; this table holds {getattr(self, name)!r}"
                )
        if row.exp_id in parent_of:
            found.append("exp_id: a row with this id exists; a new attempt needs a new id")
        row = replace(
            row,
            parent_exp=resolve_alias(row.parent_exp, parent_of),
            baseline_exp=resolve_alias(row.baseline_exp, parent_of),
        )
        for name in ("parent_exp", "baseline_exp"):
            value = getattr(row, name)
            if value and value not in parent_of:
                found.append(f"{name}: {value!r} is not in this table; leave it empty for a root")
        if circle := _circle(row.parent_exp, parent_of):
            found.append(f"parent_exp: its ancestors form a circle: {' -> '.join(circle)}")
        if found:
            raise StoreError(
                [Problem(f"{self.path}: {row.exp_id}", complaint) for complaint in found]
            )
        return row

    def _require_same_metric(self) -> None:
        path = meta_path(self.path)
        if not path.exists():
            return
        meta = read_json(path)
        mine = {"metric_name": self.metric_name, "metric_mode": self.metric_mode}
        theirs = {name: meta.get(name) for name in mine} if isinstance(meta, dict) else meta
        if theirs != mine:
            raise StoreError(
                Problem(
                    str(path),
                    f"this table was begun with {theirs}, not with {mine}.",
                    action="Use another table for another metric.",
                )
            )


def _mended(fd: int, path: Path) -> bytes:
    """Return the content of the table after moving a torn tail out and writing a missing header."""
    if tail := torn_tail(fd):
        quarantine_tail(fd, path, tail)
    body = os.pread(fd, os.fstat(fd).st_size, 0)
    if not body:
        body = HEADER.encode() + b"\n"
        write_line(fd, body, path)
        fsync_dir(path.parent)
    elif problem := _header_problem(body, path):
        raise StoreError(problem)
    return body


def _header_problem(body: bytes, path: Path) -> Problem | None:
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


def _ids(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield (exp_id, parent_exp) of each line; a scan cheap enough to do at every append."""
    for line in body.split(b"\n")[1:-1]:
        cells = line.split(b"\t", _PARENT + 1)
        if len(cells) > _PARENT:
            yield cells[0].decode(errors="replace"), cells[_PARENT].decode(errors="replace")


def _circle(start: str, parent_of: Mapping[str, str]) -> list[str]:
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


def _parse(body: bytes, path: Path) -> ReadResult:
    if not body:
        return ReadResult((), ())
    *lines, tail = body.split(b"\n")
    if lines and (problem := _header_problem(body, path)):
        return ReadResult((), (problem,))
    rows: dict[str, LineageRow] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            row = decode_row(line.decode())
            if row.exp_id in rows:
                raise ValueError(f"exp_id: {row.exp_id!r} is a duplicate")
            rows[row.exp_id] = row
        except ValueError as error:
            problems.append(Problem(f"{path}:{number}", f"{error}.", action=_SKIPPED))
    if tail:
        what = f"a torn last line of {len(tail)} bytes; its writer was killed."
        problems.append(Problem(f"{path}:{len(lines) + 1}", what, action=_SKIPPED))
    return ReadResult(tuple(rows.values()), tuple(problems))
