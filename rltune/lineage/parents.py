"""The parent of a row that was written before its control had a result.

A row is written once, as soon as its attempt has ended, and may be older than the row that it
departs from: the control of its seed crashed, or was interrupted, and finished in a later launch.
Which trial that is follows from the sweep and the seed, so the row's parent is found when it is
read. A run's table and one that sweeps share say the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rltune.lineage.row import LineageRow
from rltune.types import RowStatus


def with_parents(rows: Sequence[LineageRow]) -> tuple[LineageRow, ...]:
    """Return the rows, each whose control finished after it with that control's row as parent."""
    controls: dict[tuple[str, str, int | None], LineageRow] = {}
    for row in rows:
        if _is_control(row):
            controls.setdefault(_key(row), row)
    return tuple(
        with_parent(row, controls.get(_key(row))) if lacks_control(row) else row for row in rows
    )


def lacks_control(row: LineageRow) -> bool:
    """Whether a row is of a trial of a sweep and has no parent in the table of its run."""
    is_of_trial = bool(row.sweep) and row.is_of_sweep and not _is_control(row)
    return is_of_trial and (not row.parent_exp or _run(row.parent_exp) != _run(row.exp_id))


def with_parent(row: LineageRow, control: LineageRow | None) -> LineageRow:
    """Return a row with its control's as parent; unchanged where there is none or it is its own."""
    if control is None or control.condition == row.condition:
        return row
    return replace(row, parent_exp=control.exp_id)


def control_of(row: LineageRow, rows: Iterable[LineageRow]) -> LineageRow | None:
    """Return the row of the finished control of a row's run, sweep and seed; None without one."""
    return next((one for one in rows if _is_control(one) and _key(one) == _key(row)), None)


def _is_control(row: LineageRow) -> bool:
    return row.status is RowStatus.BASELINE and row.is_of_sweep


def _key(row: LineageRow) -> tuple[str, str, int | None]:
    return _run(row.exp_id), row.sweep, row.seed


def _run(exp_id: str) -> str:
    """Return the run that an id names: empty in the run's own table."""
    return exp_id.rpartition("/")[0]
