"""Rows from elsewhere on their way into a table: cleaned, linked, none dropped without a word."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltune.errors import Problem, StoreError
from rltune.lineage.row import COLUMNS, LineageRow, resolve_alias, row_problems
from rltune.lineage.table import LineageStore

_SKIPPED = "The record is skipped."


@dataclass(frozen=True, slots=True)
class Found:
    """What a foreign table holds.

    Attributes:
        rows: (first physical line, row) in file order.
        problems: Records that could not be read.

    """

    rows: tuple[tuple[int, LineageRow], ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """What went into a table.

    Attributes:
        rows: Rows that were appended, or would be.
        problems: Records that are skipped, each with its line.
        notes: What was changed in rows that are kept, each with its line.

    """

    rows: tuple[LineageRow, ...]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]


class Reader:
    """Collects the rows of a foreign table; a record that cannot be read becomes a problem."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[tuple[int, LineageRow]] = []
        self._problems: list[Problem] = []

    @property
    def found(self) -> Found:
        """What was collected so far."""
        return Found(tuple(self._rows), tuple(self._problems))

    def add(self, number: int, row: LineageRow) -> None:
        """Keep a row that begins at line `number`."""
        self._rows.append((number, row))

    @contextmanager
    def record(self, number: int) -> Iterator[None]:
        """Turn the ValueError of a record into its problem."""
        try:
            yield
        except ValueError as error:
            what = f"{error}."
            self._problems.append(Problem(f"{self._path}:{number}", what, action=_SKIPPED))


def read_text(path: Path) -> str:
    """Read a foreign table; bytes that are no UTF-8 become replacement characters.

    Raises:
        StoreError: It is missing.

    """
    if not path.is_file():
        raise StoreError(Problem(str(path), "there is no such file."))
    return path.read_bytes().decode("utf-8-sig", errors="replace")


def require_header(path: Path, line: str, columns: Sequence[str], dialect: str) -> None:
    """Refuse a file whose first line is not this dialect's header."""
    given = line.rstrip("\r").split("\t")
    if tuple(given) != tuple(columns):
        shown = ", ".join(given[:20])
        raise StoreError(
            Problem(
                f"{path}:1",
                f"this is not a {dialect} table; its columns are {shown}.",
                f"Expected {', '.join(columns)}.",
                "Choose another --format.",
            )
        )


def admit(found: Found, known: Collection[str], path: Path) -> Imported:
    """Return the rows that a table may take, parents before their children.

    Ids that exist are skipped. A parent is looked for among the rows before, with and without
    `exp_`; one that is not there is taken out of its column and named in the notes.

    Args:
        found: What was read.
        known: Ids in the table.
        path: The foreign table, for messages.

    """
    rows: dict[str, LineageRow] = {}
    ids = set(known)
    problems, notes = list(found.problems), []
    for number, row in found.rows:
        where = f"{path}:{number}"
        row = _clean(row)
        complaints = row_problems(row)
        if row.exp_id in ids:
            complaints = [f"exp_id: {row.exp_id!r} exists already"]
        if complaints:
            what = f"{'; '.join(complaints)}."
            problems.append(Problem(where, what, action=_SKIPPED))
            continue
        whole, lost = linked(row, ids)
        if lost:
            notes.append(Problem(where, f"{row.exp_id}: {lost}."))
        rows[row.exp_id] = whole
        ids.add(row.exp_id)
    return Imported(tuple(rows.values()), tuple(problems), tuple(notes))


def _clean(row: LineageRow) -> LineageRow:
    """Take out what no text file carries: NUL and lone surrogates."""
    changes: dict[str, Any] = {
        name: value.replace("\0", "").encode(errors="replace").decode()
        for name in COLUMNS
        if isinstance(value := getattr(row, name), str) and name != "status"
    }
    return replace(row, **changes)


def linked(row: LineageRow, ids: Collection[str]) -> tuple[LineageRow, str]:
    """Return the row without links to what is not among `ids`, and what was lost."""
    changes: dict[str, Any] = {}
    lost = []
    for name, what in (("parent_exp", "parent"), ("baseline_exp", "baseline")):
        target = resolve_alias(getattr(row, name), ids)
        if target and target not in ids:
            lost.append(f"its {what} {target!r} is no row before it")
            target = ""
        changes[name] = target
    said = "; ".join(lost)
    notes = f"{row.notes} [{said}]".strip() if said else row.notes
    return replace(row, **changes | {"notes": notes}), said


def import_into(store: LineageStore, found: Found, path: Path) -> Imported:
    """Append what a foreign table holds; all of it under one lock, or nothing.

    Raises:
        StoreError: The table cannot be written.

    """
    known = {row.exp_id for row in store.read().rows} if store.path.exists() else set()
    imported = admit(found, known, path)
    store.append_many(imported.rows)
    return imported
