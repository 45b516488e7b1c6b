"""Rows of other tools on their way into a table: cleaned and linked; every skip is reported."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rltune.errors import Problem, StoreError
from rltune.lineage.row import COLUMNS, LineageRow, resolve_alias, row_problems
from rltune.lineage.table import LineageStore

_SKIPPED = "The record is skipped."
_MOST_NAMED = 300  # characters of a first line that is no header


@dataclass(slots=True)
class ForeignTable:
    """What a table of another tool holds, collected record by record."""

    path: Path  # the table
    rows: list[tuple[int, LineageRow]] = field(default_factory=list)  # (line, row) in file order
    problems: list[Problem] = field(default_factory=list)  # records that could not be read

    @contextmanager
    def record(self, number: int) -> Iterator[None]:
        """Turn the ValueError of the record at a line into a problem."""
        try:
            yield
        except ValueError as error:
            what = f"{error}."
            self.problems.append(Problem(f"{self.path}:{number}", what, action=_SKIPPED))


@dataclass(frozen=True, slots=True)
class Imported:
    """What went into a table."""

    rows: tuple[LineageRow, ...]  # rows that were appended, or would be
    problems: tuple[Problem, ...]  # records that are skipped, each with its line
    notes: tuple[Problem, ...]  # what was changed in rows that are kept, each with its line


def read_text(path: Path) -> str:
    """Read a foreign table; bytes that are not UTF-8 become replacement characters.

    Raises:
        StoreError: It is missing or empty.

    """
    if not path.is_file():
        what = "is a folder." if path.is_dir() else "there is no such file."
        raise StoreError(Problem(str(path), what, action="Give the table of another tool."))
    content = path.read_bytes()
    if not content.strip():
        raise StoreError(Problem(str(path), "is empty.", action="Give the table of another tool."))
    return content.decode("utf-8-sig", errors="replace")


def wrong_header(path: Path, columns: Sequence[str], *, tool: str, expected: str) -> StoreError:
    """Return the error of a file whose first line is not the header of a tool's table."""
    named = ", ".join(columns)[:_MOST_NAMED]
    what = f"this is not {tool} table; its columns are {named}."
    return StoreError(
        Problem(f"{path}:1", what, f"Expected {expected}.", "Choose another --format.")
    )


def admit(table: ForeignTable, known: Collection[str]) -> Imported:
    """Return the rows that a table may take, parents before their children.

    Ids that exist are skipped. A parent is looked for among the rows before, with and without
    `exp_`; one that is not there is taken out of its column and named in the notes.
    """
    rows: dict[str, LineageRow] = {}
    ids = set(known)
    problems, notes = list(table.problems), []
    for number, row in table.rows:
        where = f"{table.path}:{number}"
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
            lost.append(f"its {what} {target!r} is not a row before it")
            target = ""
        changes[name] = target
    loss = "; ".join(lost)
    notes = f"{row.notes} [{loss}]".strip() if loss else row.notes
    return replace(row, **changes | {"notes": notes}), loss


def import_into(store: LineageStore, table: ForeignTable) -> Imported:
    """Append what a foreign table holds; all of it under one lock, or nothing.

    Raises:
        StoreError: The table cannot be written.

    """
    imported = admit(table, {row.exp_id for row in store.read().rows})
    store.append_many(imported.rows)
    return imported
