"""Rows of a JSON, CSV or Parquet file with their numbers, and what each column holds."""

import csv
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from rltune_envs.errors import TaskError
from rltune_envs.files_rows import Row, RowError, as_row, kind_of, read_rows, unusable

_SUFFIXES = ".jsonl, .json, .csv and .parquet"
_JSON = (str, int, float, bool, list, dict, type(None))


def read_table(path: str) -> list[tuple[int, Row]]:
    """Return the rows of a file with their numbers from 1: items of a list, lines, or records.

    The number of a CSV row is its record's, the header left out.

    Raises:
        TaskError: The file cannot be read, is empty, has a suffix that no reader knows, or a column
            holds values of several types; rows are named.

    """
    suffix = Path(path).suffix.lower()
    read = _READERS.get(suffix)
    if read is None:
        raise TaskError(f"{path}: {suffix or 'no suffix'} is not known; give one of {_SUFFIXES}")
    rows = read(path)
    if not rows:
        raise TaskError(f"{path}: holds no row; give a file with one row for each problem")
    _require_types(path, rows)
    return rows


def _read_json(path: str) -> list[tuple[int, Row]]:
    rows, reasons = [], {}
    values = read_rows(path)
    for number, value in values:
        try:
            rows.append((number, as_row(value)))
        except RowError as error:
            reasons[number] = str(error)
    if reasons:
        raise unusable(path, reasons, total=len(values), kind="problems")
    return rows


def _read_csv(path: str) -> list[tuple[int, Row]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            records = list(csv.reader(file, strict=True))
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: is not UTF-8 text; save it as UTF-8: {error}") from error
    except csv.Error as error:
        raise TaskError(f"{path}: is not CSV: {error}; write it with a CSV library") from error
    if not records:
        return []
    header, *body = records
    _require_header(path, header)
    reasons = {
        number: f"it has {len(record)} fields, the header {len(header)}; put text with a comma in "
        "double quotes"
        for number, record in enumerate(body, start=1)
        if record and len(record) != len(header)
    }
    if reasons:
        raise unusable(path, reasons, total=len(body), kind="problems")
    return [
        (number, dict(zip(header, record, strict=True)))
        for number, record in enumerate(body, start=1)
        if record
    ]


def _require_header(path: str, header: list[str]) -> None:
    repeated = [name for i, name in enumerate(header) if name in header[:i]]
    if repeated or not all(name.strip() for name in header):
        what = (
            f"names the column {repeated[0]!r} twice" if repeated else "has a column without name"
        )
        raise TaskError(f"{path}: its header {what}; give each column a name of its own")


def _read_parquet(path: str) -> list[tuple[int, Row]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TaskError(
            f"{path}: reading Parquet needs pyarrow, which is not installed; install "
            "rltune[parquet], or save the file as .jsonl"
        ) from error
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        first = str(error).partition("\n")[0]
        raise TaskError(f"{path}: cannot be read as Parquet: {first}") from error
    return [
        (number, {key: _plain(value) for key, value in row.items()})
        for number, row in enumerate(rows, start=1)
    ]


def _plain(value: Any) -> Any:
    """Return a value of a Parquet file as a JSON value."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, date | datetime | time | Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, _JSON) else repr(value)


_READERS: Mapping[str, Callable[[str], list[tuple[int, Row]]]] = {
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _require_types(path: str, rows: list[tuple[int, Row]]) -> None:
    """Refuse columns with values of several types; a missing value has none."""
    first: dict[str, tuple[int, str]] = {}
    reasons: dict[int, str] = {}
    for number, row in rows:
        for column, value in row.items():
            if value is None:
                continue
            kind = "true or false" if isinstance(value, bool) else kind_of(value)
            at, known = first.setdefault(column, (number, kind))
            if kind != known:
                reasons[number] = (
                    f"{column} is {kind}, in row {at} it is {known}; write it as {known} in all "
                    "rows"
                )
    if reasons:
        raise unusable(path, reasons, total=len(rows), kind="problems")
