"""The trials: one row each, so that a mark of a figure leads to its files and to its rerun."""

from collections.abc import Mapping, Sequence

from rltune.analysis.tables import TrialRow
from rltune.report.html.table import Cell, Table, marked, rounded
from rltune.report.render import duration


def trial_places(trials: Sequence[TrialRow]) -> dict[str, str]:
    """Return trial id -> id of its row on the page."""
    return {row.trial_id: f"trial-{at}" for at, row in enumerate(trials, start=1)}


def trials_table(trials: Sequence[TrialRow], places: Mapping[str, str]) -> Table:
    """Return every trial."""
    headers = [
        "trial id",
        "condition",
        "seed",
        "status",
        "step",
        "start",
        "best gate",
        "final",
        "time",
    ]
    return Table(
        "Every trial. Its files are in trials/ID; rltune rerun ID --verify repeats it.",
        headers,
        [_cells(row) for row in trials],
        numeric=(2, 4, 5, 6, 7, 8),
        ids=[places[row.trial_id] for row in trials],
    )


def _cells(row: TrialRow) -> list[Cell]:
    best = rounded(row.selected) + ("" if row.best_step is None else f" (step {row.best_step})")
    return [
        marked("code", row.trial_id),
        row.condition,
        row.seed,
        row.status,
        f"{'–' if row.final_step is None else row.final_step}/{row.planned_steps}",
        rounded(row.base),
        best + _of_tasks(row.selected_tasks, row),
        rounded(row.final) + _of_tasks(row.final_tasks, row),
        duration(row.wall_s),
    ]


def _of_tasks(n: int | None, row: TrialRow) -> str:
    """Return the tasks that a value is over, where faults took some."""
    return "" if n is None or n == row.heldout_tasks else f", {n} of {row.heldout_tasks}"
