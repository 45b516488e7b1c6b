"""JSON lines: appended one whole line at a time, read tolerantly, cut back atomically at resume."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rltune.errors import Problem, StoreError
from rltune.store.files import (
    dumps,
    fsync_dir,
    loads,
    quarantine,
    quarantine_tail,
    replacing,
    torn_tail,
    write_line,
)

_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Row = dict[str, Any]


class JsonlRead(NamedTuple):
    """What a JSON-lines file holds, and what in it could not be read."""

    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]


class Truncated(NamedTuple):
    """How many lines `truncate_jsonl` kept, dropped, and moved to the `.torn` file."""

    kept: int
    dropped: int
    torn: int


def append_jsonl(path: Path, record: Mapping[str, object], *, sync: bool = True) -> None:
    """Append one record; see `append_jsonl_many`."""
    append_jsonl_many(path, (record,), sync=sync)


def append_jsonl_many(
    path: Path, records: Iterable[Mapping[str, object]], *, sync: bool = True
) -> None:
    """Append records, each as one full line in one `os.write`. One process writes a file at a time.

    A last line without its newline was left by a killed writer. When it is a whole record
    only the newline is added; else it is moved to `<name>.torn`, so that it cannot merge
    with the next record.

    Args:
        path: File to append to; created when missing.
        records: Objects; all are encoded before the first is written.
        sync: Wait until the lines are on the disk. A killed process loses nothing either way;
            a power cut may lose lines written without it.

    Raises:
        TypeError: A record has no JSON form; nothing was written.
        OSError: The disk is full; the line that did not fit was taken back.

    """
    lines = [dumps(record).encode() + b"\n" for record in records]
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        is_new = os.fstat(fd).st_size == 0
        _mend_jsonl_tail(fd, path)
        for line in lines:
            write_line(fd, line, path)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    if sync and is_new:
        fsync_dir(path.parent)


def _mend_jsonl_tail(fd: int, path: Path) -> None:
    tail = torn_tail(fd)
    if not tail:
        return
    try:
        is_whole = isinstance(loads(tail), dict)  # an object cut short has no closing brace
    except ValueError:
        is_whole = False
    if is_whole:
        write_line(fd, b"\n", path)
    else:
        quarantine_tail(fd, path, tail)


def read_jsonl(path: Path) -> JsonlRead:
    """Read every whole record; report every other line. A missing file is empty.

    Returns:
        Rows in file order, and a problem with its line number for a torn last line and
        for each line that is not a JSON object.

    """
    rows: list[Row] = []
    problems: list[Problem] = []
    for number, _, row, complaint in _parsed_lines(path):
        if row is not None:
            rows.append(row)
        else:
            problems.append(Problem(f"{path}:{number}", complaint, action="The line is skipped."))
    return JsonlRead(tuple(rows), tuple(problems))


def read_complete(path: Path) -> tuple[Row, ...]:
    """Read a file of which no record may be missing; one whose line was cut off never was one.

    Raises:
        StoreError: A line that was written whole is not a record; names every such line.

    """
    rows: list[Row] = []
    lost: list[Problem] = []
    for number, line, row, complaint in _parsed_lines(path):
        if row is not None:
            rows.append(row)
        elif line.endswith(b"\n"):
            action = "Restore the line from a copy: a record would be lost with it."
            lost.append(Problem(f"{path}:{number}", complaint, action=action))
    if lost:
        raise StoreError(lost)
    return tuple(rows)


def _parsed_lines(path: Path) -> Iterator[tuple[int, bytes, Row | None, str]]:
    """Yield the number and bytes of each line, and its record or what is wrong with it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield number, line, *_parse_line(line)


def _parse_line(line: bytes) -> tuple[Row | None, str]:
    """Return the record, or None and why there is none."""
    is_torn = not line.endswith(b"\n")
    try:
        row = loads(line)
    except ValueError as error:
        what = "a torn last line (its writer was killed)" if is_torn else f"not JSON ({error})"
        return None, f"{what}: {line[:60]!r}."
    if not isinstance(row, dict):
        return None, f"not a JSON object: {line[:60]!r}."
    return row, ""


def read_metrics(path: Path) -> JsonlRead:
    """Read a metrics file; the strings "NaN", "Infinity", "-Infinity" come back as floats."""
    read = read_jsonl(path)
    rows = tuple({key: _metric_value(value) for key, value in row.items()} for row in read.rows)
    return JsonlRead(rows, read.problems)


def _metric_value(value: Any) -> Any:
    return _SPECIAL_FLOATS.get(value, value) if isinstance(value, str) else value


def truncate_jsonl(path: Path, keep: Callable[[Row], bool]) -> Truncated:
    """Rewrite the file atomically with the records for which `keep` is true, byte for byte.

    Lines that are not records go to `<name>.torn`. Nothing is rewritten when all are kept.
    """
    if not path.exists():
        return Truncated(0, 0, 0)
    if (counts := _copy_kept(path, keep, None)) == Truncated(counts.kept, 0, 0):
        return counts
    with replacing(path) as out:
        return _copy_kept(path, keep, out)


def _copy_kept(path: Path, keep: Callable[[Row], bool], out: BinaryIO | None) -> Truncated:
    """Count, and when `out` is given copy the kept lines and quarantine the torn ones."""
    kept = dropped = torn = 0
    with path.open("rb") as file:
        for line in file:
            row, complaint = _parse_line(line)
            if row is None:
                torn += 1
                if out:
                    quarantine(path, line, complaint)
            elif keep(row):
                kept += 1
                if out:
                    out.write(line if line.endswith(b"\n") else line + b"\n")
            else:
                dropped += 1
    return Truncated(kept, dropped, torn)


def truncate_after_step(path: Path, step: int) -> Truncated:
    """Drop the records of steps after `step`: what a resumed trial will measure again."""
    return truncate_jsonl(
        path, lambda row: not (isinstance(row.get("step"), int) and row["step"] > step)
    )
