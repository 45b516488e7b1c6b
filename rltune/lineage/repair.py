"""Repairing a lineage table: lines that are not rows move to a side file; none is thrown away."""

from dataclasses import dataclass
from pathlib import Path

from rltune.errors import Problem, StoreError
from rltune.lineage.read import (
    BadLine,
    Metric,
    header_problem,
    meta_path,
    metrics_of,
    parse,
    read_metric,
    with_all_columns,
)
from rltune.lineage.row import HEADER, decode_row
from rltune.lineage.table import FORMAT, LineageStore
from rltune.store.files import quarantine, replacing, write_json_atomic

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Damage:
    """What a repair changes, or changed."""

    path: Path  # the table
    rows: int  # whole rows, which stay as they are
    bad: tuple[BadLine, ...]  # lines that move to the side file
    notes: tuple[str, ...]  # what else is mended, one sentence each

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to mend."""
        return not self.bad and not self.notes

    @property
    def side_file(self) -> Path:
        """Where the lines go that are not rows."""
        return self.path.with_name(self.path.name + ".torn")


@dataclass(frozen=True, slots=True)
class _Plan:
    damage: Damage
    content: bytes
    metric: Metric


def find_damage(path: Path) -> Damage:
    """Tell what a repair would do; change nothing.

    Raises:
        StoreError: The file is missing, no lineage table, or of no known metric.

    """
    return _plan(path).damage


def repair(path: Path) -> Damage:
    """Mend a table under its lock; return what was changed.

    The bad lines are on the disk of the side file before the table is replaced.

    Raises:
        StoreError: As in `find_damage`.

    """
    metric = _plan(path).metric
    with LineageStore(path, metric.name, metric.mode).lock():
        plan = _plan(path)
        damage = plan.damage
        for bad in damage.bad:
            quarantine(path, bad.content, f"line {bad.number}: {bad.why}")
        if not meta_path(path).exists():
            named = {"metric_name": metric.name, "metric_mode": metric.mode}
            write_json_atomic(meta_path(path), {"format": FORMAT} | named)
        if not damage.is_clean:
            with replacing(path) as file:
                file.write(plan.content)
    return damage


def _plan(path: Path) -> _Plan:
    if not path.is_file():
        raise StoreError(Problem(str(path), "there is no such lineage table."))
    body, notes = _unix(path.read_bytes())
    body = with_all_columns(body)
    problem = header_problem(body, path)
    has_header = problem is None
    if problem is not None:
        first = body.partition(b"\n")[0]
        is_headless = not body or _is_row(first)
        if not is_headless and not any(map(_is_row, body.split(b"\n")[1:])):
            raise StoreError(problem)
        if not is_headless:  # a torn or foreign first line, rows after it
            body = HEADER.encode() + b"\n" + body
        notes.append("the header is missing; it is added" if is_headless else _DAMAGED)
        has_header = not is_headless
    metric = _metric(path, body, has_header=has_header)
    if not meta_path(path).exists():
        notes.append(f"{meta_path(path).name} is missing; it is added: {' '.join(metric)}")
    parsed = parse(body, metric, has_header=has_header)
    shift = 1 if _DAMAGED in notes else 0  # the header that was put before the file's first line
    bad = tuple(one._replace(number=one.number - shift) for one in parsed.bad)
    content = b"".join(line + b"\n" for line in (HEADER.encode(), *parsed.lines))
    return _Plan(Damage(path, len(parsed.rows), bad, tuple(notes)), content, metric)


_DAMAGED = "the header is damaged; it is rewritten"


def _unix(body: bytes) -> tuple[bytes, list[str]]:
    """Undo what an editor did to a table: byte order mark, line ends. A table of ours has none."""
    notes = []
    if body.startswith(_BOM):
        body = body.removeprefix(_BOM)
        notes.append("the byte order mark is removed")
    if body.partition(b"\n")[0].endswith(b"\r"):
        body = body.replace(b"\r\n", b"\n")
        notes.append("Windows line ends become newlines")
    return body, notes


def _is_row(line: bytes) -> bool:
    try:
        decode_row(line.decode())
    except ValueError:
        return False
    return True


def _metric(path: Path, body: bytes, *, has_header: bool) -> Metric:
    if meta_path(path).exists():
        return read_metric(path)
    whole = body if has_header else HEADER.encode() + b"\n" + body
    metrics = metrics_of(whole)
    return metrics.pop() if len(metrics) == 1 else read_metric(path)
