r"""One record of results.tsv: 32 typed columns on one physical line.

The first 17 columns are those of the field's lineage tool (fieldkit, after NanoChat-D12)
in its order. Its csv quoting is not kept: it lets one record span several lines, which
breaks awk, cut and wc. Here tab, newline, carriage return and backslash are written as
`\t \n \r \\`, and nothing else is special.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rltune.types import RowStatus

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_TO_ESCAPE = re.compile(r"[\\\t\n\r]")
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_UNESCAPES = {escaped[1]: plain for plain, escaped in _ESCAPES.items()}

RERUN, CHILD = "rerun", "child"
"""`job_name` of rows that are no trial of the sweep; a launch of a sweep has a number."""

LATER = {"later": True}
"""Metadata of a column that tables begun before it do not have: they read as its default.

A new column needs it, and stands last.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRow:
    """What one attempt of one trial tried, expected and measured, and how it ended.

    Empty text and None mean unknown or not applicable, never zero.
    """

    exp_id: str  # unique in the file; the trial_id, with `.a2` for a second attempt
    timestamp: str = ""  # end of the attempt, UTC, ISO 8601
    specialist: str = ""  # who proposed it
    parent_exp: str = ""  # the row it departs from; empty for a root
    baseline_exp: str = ""  # the best row at record time: delta_vs_best compares with it
    domain: str = ""  # kind of env
    hypothesis: str = ""
    expected_delta: str = ""  # what was predicted before the run
    status: RowStatus
    core_metric: float | None = None  # metric_name on the held-out tasks at best_step
    val_bpb: float | None = None  # of the field's language-model runs; empty here
    delta_vs_best: float | None = None  # core_metric minus that of baseline_exp, sign not turned
    train_s: float | None = None  # seconds of training
    total_s: float | None = None  # seconds from start to end
    job_name: str = ""  # the driver's launch
    snapshot_path: str = ""  # checkpoint that the gate chose, of rows that are kept
    notes: str = ""
    sweep: str = ""
    axis_key: str = ""
    axis_value: str = ""  # JSON
    condition: str = ""
    seed: int | None = None
    trial_id: str = ""
    config_hash: str = ""
    commit: str = ""  # with `-dirty` when the tree had changes
    metric_name: str = ""
    metric_mode: str = ""  # max or min
    heldout_metric: float | None = None  # held-out tasks, at best_step
    pool_metric: float | None = None  # training tasks; never chooses anything
    best_step: int | None = None
    ig_mean: float | None = None  # mean information gain per turn
    wandb_id: str = ""

    @property
    def is_of_sweep(self) -> bool:
        """Whether it is of a trial of the sweep, not of a rerun or a child."""
        return self.job_name not in (RERUN, CHILD)


COLUMNS = tuple(field.name for field in fields(LineageRow))
HEADER = "\t".join(COLUMNS)
_LATER = frozenset(field.name for field in fields(LineageRow) if field.metadata.get("later"))
_FLOATS = frozenset(field.name for field in fields(LineageRow) if field.type == float | None)
_INTS = frozenset(field.name for field in fields(LineageRow) if field.type == int | None)
_NUMBERS = tuple(
    (name, float if name in _FLOATS else int) for name in COLUMNS if name in _FLOATS | _INTS
)
_TEXTS = tuple(name for name in COLUMNS if name not in _FLOATS | _INTS | {"status"})
_STATUSES = {status.value: status for status in RowStatus}


def is_foreign(exp_id: str) -> bool:
    """Tell whether an id is that of a row of another run: `kl-2ae5c1e9/kl_loss_coef=0.01-s0-15`."""
    return "/" in exp_id


def resolve_alias(name: str, ids: Collection[str]) -> str:
    """Return the id that `name` means.

    Agents echo ids with the `exp_` prefix that other tools' renderings put before them.
    """
    bare = name.removeprefix("exp_")
    return bare if name not in ids and bare in ids else name


def escape(text: str) -> str:
    r"""Return `text` on one physical line without tabs.

    Raises:
        ValueError: It holds a NUL or a lone surrogate, which no text file can carry safely.

    """
    if "\0" in text:
        raise ValueError(f"{text!r} contains a NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} is not valid Unicode ({error.reason})") from error
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)


def unescape(cell: str) -> str:
    """Invert `escape`.

    Raises:
        ValueError: A backslash is followed by something that `escape` never writes.

    """
    return _ESCAPED.sub(_unescape_one, cell)


def _unescape_one(match: re.Match[str]) -> str:
    if match[1] not in _UNESCAPES:
        raise ValueError(f"{match[0]!r} is not an escape")
    return _UNESCAPES[match[1]]


def row_problems(row: LineageRow) -> list[str]:
    """Return what is wrong with the values of a row, one sentence each."""
    complaints = []
    for name in COLUMNS:
        complaint = _complaint(name, getattr(row, name))
        if complaint:
            complaints.append(f"{name}: {complaint}")
    if isinstance(row.exp_id, str) and (complaint := _id_complaint(row.exp_id)):
        complaints.append(complaint)
    return complaints


def _id_complaint(exp_id: str) -> str:
    if exp_id and exp_id.strip() == exp_id and not _TO_ESCAPE.search(exp_id):
        return ""
    return (
        f"exp_id: {exp_id!r} must be non-empty, without space around it, tab, newline or backslash"
    )


def _complaint(name: str, value: object) -> str:
    if name == "status":
        return "" if isinstance(value, RowStatus) else f"{value!r} is not a status. {_statuses()}"
    if name in _FLOATS:
        is_number = value is None or (
            isinstance(value, float | int) and not isinstance(value, bool)
        )
        is_good = is_number and (value is None or math.isfinite(value))  # type: ignore[arg-type]
        return "" if is_good else f"{value!r} is not a finite number; None means none"
    if name in _INTS:
        is_int = value is None or (isinstance(value, int) and not isinstance(value, bool))
        return "" if is_int else f"{value!r} is not an integer; None means none"
    if not isinstance(value, str):
        return f"{value!r} is not text"
    try:
        escape(value)
    except ValueError as error:
        return str(error)
    return ""


def _statuses() -> str:
    return "Choose one of " + ", ".join(RowStatus)


def encode_row(row: LineageRow) -> str:
    """Return the record without its newline; floats read back bit-equal."""
    return "\t".join(_encode(name, getattr(row, name)) for name in COLUMNS)


def _encode(name: str, value: object) -> str:
    if value is None:
        return ""
    if name in _FLOATS:
        return repr(float(value))  # type: ignore[arg-type]
    return escape(str(value))


def columns_of(header: str) -> tuple[str, ...] | None:
    """Return the columns that a header names; None if no rltune wrote a table with it.

    A table that was begun earlier may lack some of the columns that came later.
    """
    names = tuple(header.split("\t"))
    is_known = names == tuple(name for name in COLUMNS if name in names)
    return names if is_known and set(COLUMNS) - set(names) <= _LATER else None


def decode_row(line: str, columns: Sequence[str] = COLUMNS) -> LineageRow:
    """Parse one record without its newline.

    Args:
        line: The record.
        columns: Those of its table, as `columns_of` gives them.

    Raises:
        ValueError: The number of columns, a status, a number or an escape is wrong.

    """
    cells = line.split("\t")
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} columns instead of {len(columns)}")
    values: dict[str, Any] = dict(zip(columns, cells, strict=True))
    if "\\" in line:  # most lines hold none: a hundred thousand are read in a moment
        values |= {name: _text(name, values[name]) for name in _TEXTS if name in values}
    for name, kind in _NUMBERS:
        if name in values:
            values[name] = _number(name, kind, values[name]) if values[name] else None
    values["status"] = parse_status(values["status"])
    if "\0" in line:
        raise ValueError("it contains a NUL")
    if complaint := _id_complaint(values["exp_id"]):
        raise ValueError(complaint)
    return LineageRow(**values)


def _text(name: str, cell: str) -> str:
    try:
        return unescape(cell)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _number(name: str, kind: type[int] | type[float], cell: str) -> float:
    try:
        value = kind(cell)
    except ValueError:
        raise ValueError(f"{name}: {cell!r} is not a number") from None
    if complaint := _complaint(name, value):
        raise ValueError(f"{name}: {complaint}")
    return value


def parse_status(cell: str) -> RowStatus:
    """Return the status that a cell names.

    Raises:
        ValueError: It names none.

    """
    if cell not in _STATUSES:
        raise ValueError(f"status: {cell!r} is not a status. {_statuses()}")
    return _STATUSES[cell]
