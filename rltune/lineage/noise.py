"""Noise of the held-out tasks: the interval of a difference between two trials.

It covers the luck of the tasks alone. The luck of the training seed comes on top, and the gate that
chose a trial's checkpoint saw the same tasks, so the interval is a lower bound.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rltune.gate import SET_MEASURES, set_metric
from rltune.lineage.query import COMPARED, sign_of
from rltune.lineage.row import LineageRow
from rltune.maths.difference import paired_interval, unpaired_interval
from rltune.maths.interval import Interval
from rltune.store.jsonl import read_jsonl
from rltune.store.rundir import RunDir, TrialDir
from rltune.types import RowStatus

WITHIN, BEYOND, UNKNOWN = "within noise", "beyond noise", "noise unknown"
"""How the notes begin of a row that was compared with the best at record time."""

_COLUMNS = {"heldout/success_rate": "success", "heldout/reward_mean": "reward"}


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of each held-out task at one gate."""

    tasks: str  # hash of the task list; two gates with the same hash can be paired
    values: tuple[float | None, ...]  # one a task; None where the episode had a fault


OutcomesOf = Callable[[LineageRow], Outcomes | None]


def outcomes_at(trial: TrialDir, step: int | None, metric_name: str) -> Outcomes | None:
    """Return what a trial's gate at `step` saw, task by task; None when the files do not say."""
    if step is None:
        return None
    for gate in reversed(read_jsonl(trial.heldout).rows):
        if gate.get("step") == step and (scores := scores_of(gate, metric_name)) is not None:
            return Outcomes(str(gate.get("tasks_sha256", "")), tuple(scores))
    return None


def measures_of(gate: Mapping[str, Any]) -> list[str]:
    """Return the metrics that a gate recorded task by task."""
    named = [name for name, column in _COLUMNS.items() if isinstance(gate.get(column), list)]
    named += [f"heldout/{name}" for name in gate.get("auxiliary") or {}]
    told = [measure for measure in SET_MEASURES if f"heldout/{measure}" in named]
    sets = dict.fromkeys(gate.get("set") or ())
    return named + [f"heldout/{one}/{measure}" for one in sets for measure in told]


def narrowed(gate: Mapping[str, Any], metric_name: str) -> tuple[Mapping[str, Any], str]:
    """Return what a gate recorded of the tasks that a metric is over, and the plain metric.

    Those of `heldout/nq/em` are the tasks of the set `nq`, and the plain metric is `heldout/em`.
    For any other metric both are as given. No task is of `macro`: it is a mean over sets.
    """
    found, sets = set_metric(metric_name), gate.get("set") or ()
    if found is None:
        return gate, metric_name
    places = [place for place, name in enumerate(sets) if name == found.name]

    def picked(column: Any) -> Any:
        is_of_tasks = isinstance(column, list) and len(column) == len(sets)
        return [column[place] for place in places] if is_of_tasks else column

    measures = {name: picked(column) for name, column in (gate.get("auxiliary") or {}).items()}
    columns = {name: picked(column) for name, column in gate.items()}
    plain = f"heldout/{found.measure}"
    return (columns | {"auxiliary": measures} if places else {}), plain


def task_values(gate: Mapping[str, Any], metric_name: str) -> list[Any] | None:
    """Return the values of a metric, one a task; None where the gate recorded only their mean."""
    gate, metric_name = narrowed(gate, metric_name)
    if column := _COLUMNS.get(metric_name):
        values = gate.get(column)
        return values if isinstance(values, list) else None
    measures = gate.get("auxiliary")
    values = measures.get(metric_name.removeprefix("heldout/")) if measures else None
    # An episode that the context cut short has no measure and counts as 0, as in the metric.
    return [0.0 if v is None else v for v in values] if isinstance(values, list) else None


def scores_of(gate: Mapping[str, Any], metric_name: str) -> list[float | None] | None:
    """Return one score a task, None where the episode had a fault or no finite score.

    None where the gate recorded only their mean.
    """
    gate, metric_name = narrowed(gate, metric_name)
    values = task_values(gate, metric_name)
    if values is None:
        return None
    faults = gate.get("fault") or [""] * len(values)
    return [
        float(value)
        if not fault and isinstance(value, int | float) and math.isfinite(value)
        else None
        for value, fault in zip(values, faults, strict=True)
    ]


def outcomes_of_run(run: RunDir) -> OutcomesOf:
    """Return a function that finds the outcomes behind the rows of a run folder."""

    def outcomes_of(row: LineageRow) -> Outcomes | None:
        trials = {trial.trial_id: trial for trial in (*run.trial_dirs(), *run.child_dirs())}
        trial = trials.get(row.trial_id)
        return outcomes_at(trial, row.best_step, row.metric_name) if trial else None

    return outcomes_of


def difference_interval(ours: Outcomes, theirs: Outcomes) -> Interval | None:
    """Return the 95 % interval of ours - theirs; None with too few tasks.

    Paired when both played the same task list: tasks are easy or hard for everybody, and that
    part of the luck cancels.
    """
    try:
        if ours.tasks and ours.tasks == theirs.tasks and len(ours.values) == len(theirs.values):
            both = zip(ours.values, theirs.values, strict=True)
            pairs = [(a, b) for a, b in both if a is not None and b is not None]
            return paired_interval([a for a, _ in pairs], [b for _, b in pairs])
        return unpaired_interval(_known(ours), _known(theirs))
    except ValueError:
        return None


def _known(outcomes: Outcomes) -> list[float]:
    return [value for value in outcomes.values if value is not None]


def with_noise(row: LineageRow, rows: Sequence[LineageRow], outcomes_of: OutcomesOf) -> LineageRow:
    """Return the row with a note: its difference from the best at record time, and the noise.

    The status stays: strictly better is kept. What its notes add says whether to believe it.
    """
    if row.status not in COMPARED or row.delta_vs_best is None:
        return row
    rival = next((other for other in rows if other.exp_id == row.baseline_exp), None)
    ours, theirs = outcomes_of(row), outcomes_of(rival) if rival else None
    interval = difference_interval(ours, theirs) if ours and theirs else None
    note = UNKNOWN
    if interval is not None:
        where = WITHIN if interval.low <= 0.0 <= interval.high else BEYOND
        note = f"{where}: {row.delta_vs_best:+.3f} in [{interval.low:+.3f}, {interval.high:+.3f}]"
    return replace(row, notes="; ".join(part for part in (note, row.notes) if part))


def is_noise(row: LineageRow) -> bool:
    """Whether a row's difference from the best at record time may be luck, as its notes say."""
    return row.notes.startswith(WITHIN)


def is_progress(row: LineageRow, mode: str) -> bool:
    """Whether a row is a kept improvement that its notes do not call noise."""
    delta = row.delta_vs_best
    is_better = delta is None or sign_of(mode) * delta > 0
    return row.status is RowStatus.KEEP and is_better and not is_noise(row)
