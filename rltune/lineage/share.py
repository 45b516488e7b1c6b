"""A table that several sweeps share: a copy of every row, under an id that names the run folder."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rltune.errors import Problem, StoreError
from rltune.lineage.importing import linked
from rltune.lineage.row import LineageRow, is_foreign
from rltune.lineage.table import LineageStore, rows_in


def shared_id(run_name: str, exp_id: str) -> str:
    """Return the id of a row in a shared table: `kl-2ae5c1e9/kl_loss_coef=0.01-s0-1514878a44`."""
    return f"{run_name}/{exp_id}" if exp_id else ""


def row_of_trial(table: Path, trial_id: str) -> str:
    """Return the id, in a shared table, of the last row of a trial.

    Args:
        table: results.tsv of its run.
        trial_id: Also the id of its first row, where the table does not have it yet.

    """
    names = [row.exp_id for row in rows_in(table) if row.trial_id == trial_id]
    return shared_id(table.resolve().parent.name, names[-1] if names else trial_id)


def require_rankable(store: LineageStore, domains: Iterable[str]) -> None:
    """Refuse a shared table that holds another kind of env: its rates mean another thing.

    Raises:
        StoreError: It holds other domains than these.

    """
    held = {row.domain for row in store.read().rows} | set(domains)
    if len(held - {""}) > 1:
        mixed = " and ".join(sorted(held - {""}))
        what = f"this table would mix {mixed}, which cannot be ranked together."
        raise StoreError(Problem(str(store.path), what, action="Give each its own --lineage."))


def share(rows: Iterable[LineageRow], store: LineageStore, run_name: str) -> int:
    """Append the rows that the shared table does not hold yet; return how many.

    A second call adds nothing, so a driver may die between its own table and the shared one. A row
    keeps the status that its own sweep gave it: best in the shared table is the best of the
    sweeps' bests. A parent that a repair put behind its child is copied before it; one that is
    nowhere is named in the notes.

    Raises:
        StoreError: The shared table is of another metric or of other tasks, or cannot be written.

    """
    mine = list(rows)
    require_rankable(store, {row.domain for row in mine})
    theirs = store.read().rows
    known = {row.exp_id for row in theirs}
    copies = [copy_of(row, run_name) for row in _parents_first(mine)]
    new = []
    for row in copies:
        if row.exp_id not in known:
            new.append(linked(row, known)[0])
            known.add(row.exp_id)
    store.append_many(new)
    return len(new)


def copy_of(row: LineageRow, run_name: str) -> LineageRow:
    """Return the copy of a run's row in a shared table."""
    return replace(
        row,
        exp_id=shared_id(run_name, row.exp_id),
        parent_exp=row.parent_exp
        if is_foreign(row.parent_exp)
        else shared_id(run_name, row.parent_exp),
        baseline_exp=shared_id(run_name, row.baseline_exp),
    )


def _parents_first(rows: Iterable[LineageRow]) -> Iterator[LineageRow]:
    """Yield the rows in their order, each parent before its first child."""
    left = {row.exp_id: row for row in rows}
    for name in list(left):
        line = []
        while row := left.pop(name, None):
            line.append(row)
            name = row.parent_exp
        yield from reversed(line)
