"""Tables as files: CSV always, Parquet with pyarrow. The same rows give the same bytes."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from rltune.analysis.tables import Row
from rltune.errors import Problem, StoreError
from rltune.store.files import replacing

if TYPE_CHECKING:
    import pyarrow

_BATCH = 50_000  # rows that are held as columns at a time
R = TypeVar("R", bound=Row)


def columns_of(kind: type[Any]) -> dict[str, type]:
    """Return the columns of a row's dataclass: name -> str, bool, int or float; any may be None."""
    hints = get_type_hints(kind)
    return {field.name: _plain(hints[field.name]) for field in fields(kind)}


def _plain(hint: Any) -> type:
    """Return the type of a column without its None."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] or [hint]
    return kinds[0]  # type: ignore[no-any-return]


def write_csv(
    path: Path, kind: type[R], rows: Iterable[R], columns: Sequence[str] | None = None
) -> int:
    """Write a table as UTF-8 CSV and return its number of rows; all columns, or those named.

    Empty is None, `true` and `false` are booleans, floats read back as the same bits.
    """
    columns, count = columns or list(columns_of(kind)), 0
    cells_of = attrgetter(*columns)
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_cell(value) for value in cells_of(row)])
            count += 1
        text.flush()
        text.detach()
    return count


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value  # csv writes None as nothing, and floats by their shortest exact text


def read_csv(path: Path, kind: type[R]) -> list[R]:
    """Read a table that `write_csv` wrote, now or before columns were added.

    Raises:
        StoreError: It has other columns, or a cell is not of its column's type.

    """
    known = columns_of(kind)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        _require_columns(path, kind, header)
        columns = {name: known[name] for name in header}
        try:
            return [_row(kind, columns, cells) for cells in reader]
        except ValueError as error:
            what = f"line {reader.line_num}: {error}."
            raise StoreError(Problem(str(path), what, action="Export it again.")) from error


def csv_columns(path: Path) -> tuple[str, ...]:
    """Return the columns that a CSV table names."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(next(csv.reader(file), ()))


def _require_columns(path: Path, kind: type[Any], names: Sequence[str]) -> None:
    """Refuse a table that lacks a column which every version wrote, or has an unknown one.

    Raises:
        StoreError: It does.

    """
    known = columns_of(kind)
    needed = {field.name for field in fields(kind) if not field.metadata.get("later")}
    if len(set(names)) < len(names) or not needed <= set(names):
        what = f"has the columns {list(names)}."
        allowed = f"A {kind.__name__} table has {list(known)}."
        raise StoreError(Problem(str(path), what, allowed, "Export it again."))
    if unknown := [name for name in names if name not in known]:
        columns = "column" if len(unknown) == 1 else "columns"
        what = f"has the {columns} {', '.join(map(repr, unknown))}, unknown to this rltune."
        allowed = "docs/export.md lists those that it knows."
        action = "Use the rltune that wrote it (manifest.json names its commit), or a later one."
        raise StoreError(Problem(str(path), what, allowed, action))


def _row(kind: type[R], columns: dict[str, type], cells: list[str]) -> R:
    if len(cells) != len(columns):
        raise ValueError(f"it has {len(cells)} cells for {len(columns)} columns")
    pairs = zip(columns.items(), cells, strict=True)
    return kind(**{name: _value(column, cell) for (name, column), cell in pairs})


def _value(column: type, cell: str) -> Any:
    if column is str:
        return cell
    if cell == "":
        return None
    if column is bool:
        if cell not in ("true", "false"):
            raise ValueError(f"{cell!r} is neither true nor false")
        return cell == "true"
    return column(cell)


def has_parquet() -> bool:
    """Tell whether Parquet can be written here."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def write_parquet(path: Path, kind: type[R], rows: Iterable[R]) -> int:
    """Write a table as Parquet and return its number of rows; needs pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count = _schema(kind), 0
    with replacing(path) as file, pq.ParquetWriter(file, schema) as writer:
        left = iter(rows)
        while batch := list(islice(left, _BATCH)):
            columns = [
                pa.array([getattr(row, field.name) for row in batch], type=field.type)
                for field in schema
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(batch)
    return count


def _schema(kind: type[R]) -> "pyarrow.Schema":
    import pyarrow as pa

    types = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    return pa.schema([(name, types[column]) for name, column in columns_of(kind).items()])


def read_parquet(path: Path, kind: type[R]) -> Iterator[R]:
    """Yield the rows of a table that `write_parquet` wrote; needs pyarrow.

    Raises:
        StoreError: It has other columns.

    """
    import pyarrow.parquet as pq

    _require_columns(path, kind, pq.read_schema(path).names)
    for row in pq.read_table(path).to_pylist():
        yield kind(**row)
