"""A3: what each condition really consumed, at a step that all of its trials reached."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rltune.spec.findings import Finding, warning
from rltune.spec.identity import flatten
from rltune.spec.inert import filter_is_on
from rltune.spec.records import TrialRecord

COUNTERS = ("budget/rollouts", "budget/generated_tokens", "budget/optimizer_steps")
"""Cumulative counters in metrics.jsonl."""

WALL = "wall_s"
TOLERANCE = 0.05
"""Largest relative difference of optimiser steps without a warning."""


@dataclass(frozen=True, slots=True)
class ConsumptionRow:
    """What one condition consumed up to the common step, mean over its trials.

    Attributes:
        condition: Its label.
        trials: How many of its trials are counted.
        consumed: Counter -> mean; a counter that was not recorded is absent.

    """

    condition: str
    trials: int
    consumed: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Consumption:
    """The consumed budgets of a sweep.

    Attributes:
        step: The last step that every counted trial reached.
        rows: One a condition, in order of appearance.
        differences: Counter -> (max - min) / max over the conditions.
        drops_groups: Whether some condition's filter may drop groups from the batch.

    """

    step: int
    rows: tuple[ConsumptionRow, ...]
    differences: Mapping[str, float]
    drops_groups: bool


def consumption(records: Sequence[TrialRecord]) -> Consumption:
    """Return what the conditions consumed at the last step that all counted trials reached.

    A failed trial before its first step counts nothing. Wall time is that of finished trials only:
    it is measured for the whole trial.
    """
    counted = [record for record in records if record.last_step > 0]
    step = min((record.last_step for record in counted), default=0)
    groups: dict[str, list[TrialRecord]] = {}
    for record in counted:
        groups.setdefault(record.spec.condition, []).append(record)
    rows = tuple(
        ConsumptionRow(label, len(group), _means([_consumed(r, step) for r in group]))
        for label, group in groups.items()
    )
    return Consumption(step, rows, _differences(rows), any(_drops(r) for r in counted))


def _consumed(record: TrialRecord, step: int) -> dict[str, float]:
    row = next((row for row in record.metrics if row["step"] == step), {})
    spent = {counter: float(row[counter]) for counter in COUNTERS if counter in row}
    if record.result is not None:
        spent[WALL] = record.result.total_s
    return spent


def _means(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    present = {counter for trial in trials for counter in trial}
    return {
        counter: fmean(trial[counter] for trial in trials if counter in trial)
        for counter in (*COUNTERS, WALL)
        if counter in present
    }


def _differences(rows: Sequence[ConsumptionRow]) -> dict[str, float]:
    found = {}
    for counter in (*COUNTERS, WALL):
        values = [row.consumed[counter] for row in rows if counter in row.consumed]
        if len(values) > 1 and max(values) > 0:
            found[counter] = (max(values) - min(values)) / max(values)
    return found


def _drops(record: TrialRecord) -> bool:
    flat = flatten(record.spec.config)
    return filter_is_on(flat) and flat["rollout_filter.on_drop"] == "drop"


def budget_findings(spent: Consumption) -> Iterator[Finding]:
    """Yield A3: optimiser steps that differ by more than 5 % between conditions."""
    difference = spent.differences.get("budget/optimizer_steps", 0.0)
    if difference <= TOLERANCE:
        return
    steps = ", ".join(
        f"{row.condition}: {row.consumed['budget/optimizer_steps']:g}"
        for row in spent.rows
        if "budget/optimizer_steps" in row.consumed
    )
    message = f"optimiser steps up to step {spent.step} differ by {difference:.0%} ({steps})."
    remedy = (
        "The filter dropped groups from the batch; set rollout_filter.on_drop: mask."
        if spent.drops_groups
        else "Compare at equal optimiser steps, not at equal training steps."
    )
    yield warning("A3", message, remedy)
