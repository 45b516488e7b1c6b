"""A3: what each condition consumed, compared with the control in the same seeds.

A pair of trials is compared twice: at the last step that both reached, and at each one's own end. A
trial that stopped at step 5 thus hides nothing of the others, and its shorter budget is stated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter

from rltune.comparability.findings import Finding, warning
from rltune.comparability.records import TrialRecord
from rltune.spec.filter_effect import FilterEffect
from rltune.spec.keys import own_keys
from rltune.spec.schema.rollout import RolloutFilter

UPDATES, MINI_BATCHES = "budget/policy_updates", "budget/optimizer_steps"
COUNTERS = ("budget/rollouts", "budget/generated_tokens", MINI_BATCHES, UPDATES)
"""Cumulative counters in metrics.jsonl."""

WALL = "wall_s"
NAMES = {
    "budget/rollouts": "rollouts",
    "budget/generated_tokens": "tokens",
    MINI_BATCHES: "optimiser steps",
    UPDATES: "policy updates",
    WALL: "wall s",
}
"""Counter -> its name for readers."""

TOLERANCE = 0.05
"""Largest relative difference of policy updates without a warning."""

Consumed = Mapping[str, float]

_FILTER: TypeAdapter[RolloutFilter] = TypeAdapter(
    Annotated[RolloutFilter, Field(discriminator="strategy")]
)


@dataclass(frozen=True, slots=True)
class ConsumptionRow:
    """What one condition consumed, each trial to its own last step, mean over its trials."""

    condition: str  # its label
    trials: int  # how many of its trials are counted
    steps: tuple[int, int]  # the lowest and the highest last step of them
    consumed: Consumed  # counter -> mean; a counter that was not recorded is absent


@dataclass(frozen=True, slots=True)
class Pairing:
    """What a condition consumed beside the control, means over the seeds that both have."""

    condition: str  # its label
    seeds: int  # how many
    # The lowest and the highest last step of the condition's trials that is compared.
    steps: tuple[int, int]
    control_steps: tuple[int, int]  # the same of the control's
    ours: Consumed  # counter -> mean of the condition
    theirs: Consumed  # counter -> mean of the control
    differences: Consumed  # counter -> (ours - theirs) / the larger of both


@dataclass(frozen=True, slots=True)
class Consumption:
    """The consumed budgets of a sweep."""

    rows: tuple[ConsumptionRow, ...]  # one a condition, in order of appearance
    # Every condition beside the control, each pair of trials at the last step that both reached.
    common: tuple[Pairing, ...]
    # The same of trials with a result, each at its own end, where these steps differ.
    ends: tuple[Pairing, ...]
    drops_groups: bool  # whether some condition's filter may drop groups from the batch


def consumption(records: Sequence[TrialRecord]) -> Consumption:
    """Return what the conditions consumed. A trial that failed before its first step has nothing.

    Wall time is of the whole trial where both of a pair are at their ends, else by the clock of
    their metrics.
    """
    counted = [record for record in records if record.last_step > 0]
    groups: dict[str, list[TrialRecord]] = {}
    for record in counted:
        groups.setdefault(record.spec.condition, []).append(record)
    rows = tuple(_row(label, group) for label, group in groups.items())
    control = {record.spec.seed: record for record in counted if record.spec.is_control}
    common, ends = [], []
    for label, group in groups.items():
        both = [(r, control[r.spec.seed]) for r in group if r.spec.seed in control]
        if not both or both[0][0].spec.is_control:
            continue
        common.append(_pairing(label, [_at_common_step(*pair) for pair in both]))
        done = [(a, b) for a, b in both if a.result is not None and b.result is not None]
        if any(a.last_step != b.last_step for a, b in done):
            ends.append(_pairing(label, [(_at_end(a), _at_end(b)) for a, b in done]))
    return Consumption(rows, tuple(common), tuple(ends), any(_drops(r) for r in counted))


class _At(NamedTuple):
    """A trial up to a step; `is_end` where that is the trial's end."""

    record: TrialRecord
    step: int
    is_end: bool


def _at_end(record: TrialRecord) -> _At:
    return _At(record, record.last_step, is_end=record.result is not None)


def _row(label: str, group: Sequence[TrialRecord]) -> ConsumptionRow:
    at = [_at_end(record) for record in group]
    return ConsumptionRow(label, len(group), _span(at), _means(at))


def _at_common_step(ours: TrialRecord, theirs: TrialRecord) -> tuple[_At, _At]:
    step = min(ours.last_step, theirs.last_step)
    is_end = ours.last_step == theirs.last_step and None not in (ours.result, theirs.result)
    return _At(ours, step, is_end), _At(theirs, step, is_end)


def _pairing(label: str, pairs: Sequence[tuple[_At, _At]]) -> Pairing:
    ours_at, theirs_at = [a for a, _ in pairs], [b for _, b in pairs]
    ours, theirs = _means(ours_at), _means(theirs_at)
    differences = {
        counter: (ours[counter] - theirs[counter]) / larger
        for counter in ours
        if counter in theirs and (larger := max(ours[counter], theirs[counter])) > 0
    }
    return Pairing(label, len(pairs), _span(ours_at), _span(theirs_at), ours, theirs, differences)


def _span(trials: Sequence[_At]) -> tuple[int, int]:
    steps = [at.step for at in trials]
    return min(steps), max(steps)


def _means(trials: Sequence[_At]) -> dict[str, float]:
    consumed = [_consumed(at) for at in trials]
    return {
        counter: fmean(one[counter] for one in consumed)
        for counter in (*COUNTERS, WALL)
        if all(counter in one for one in consumed)
    }


def _consumed(at: _At) -> dict[str, float]:
    record = at.record
    row = next((row for row in record.metrics if row["step"] == at.step), {})
    spent = {counter: float(row[counter]) for counter in COUNTERS if counter in row}
    if at.is_end and record.result is not None:
        spent[WALL] = record.result.total_s
    elif "time" in row and "time" in record.metrics[0]:
        spent[WALL] = float(row["time"]) - float(record.metrics[0]["time"])
    return spent


def _drops(record: TrialRecord) -> bool:
    config = record.spec.config
    keys = _FILTER.validate_python(own_keys("rollout_filter", config["rollout_filter"]))
    return keys.on_drop == "drop" and FilterEffect(keys, config["rollout"]["groups"]).can_drop


def budget_findings(spent: Consumption) -> Iterator[Finding]:
    """Yield A3: conditions whose policy was updated more or less often than the control's.

    A trial of before `budget/policy_updates` was recorded is compared by its optimiser steps.
    """
    dropped = "The filter dropped groups from the batch; set rollout_filter.on_drop: mask."
    equal = "Compare at equal policy updates, not at equal training steps."
    for pairing in spent.common:
        yield from _finding("A3", pairing, dropped if spent.drops_groups else equal)
    for pairing in spent.ends:
        yield from _finding("A3.ends", pairing, "Trials of other lengths are not ranked.")


def _finding(code: str, pairing: Pairing, remedy: str) -> Iterator[Finding]:
    both = [
        name for name in (UPDATES, MINI_BATCHES) if name in pairing.ours.keys() & pairing.theirs
    ]
    if not both:
        message = f"{pairing.condition}: no count of updates is recorded {where(pairing)}."
        yield warning("A3.not_recorded", message, "Run these trials again to compare budgets.")
        return
    counter = next((name for name in both if name in pairing.differences), both[0])
    difference = pairing.differences.get(counter, 0.0)
    if abs(difference) <= TOLERANCE:
        return
    word = "fewer" if difference < 0 else "more"
    made = (
        f"{pairing.condition} made {abs(difference):.0%} {word} {NAMES[counter]} than the control"
    )
    yield warning(code, f"{made} {_counts(pairing, counter)}.", remedy)


def _counts(pairing: Pairing, counter: str) -> str:
    """Return `to step 4 (20 and 40, mean over 2 seeds)`, or each side with its own step."""
    mean = "" if pairing.seeds == 1 else f", mean over {pairing.seeds} seeds"
    ours, theirs = (
        f"{side[counter]:.1f}".removesuffix(".0") for side in (pairing.ours, pairing.theirs)
    )
    step, control_step = _steps(pairing.steps), _steps(pairing.control_steps)
    if step == control_step:
        return f"to step {step} ({ours} and {theirs}{mean})"
    return f"({ours} to step {step}, {theirs} to step {control_step}{mean})"


def where(pairing: Pairing) -> str:
    """Return `to step 20`, or `to step 5, the control to step 20`."""
    ours, theirs = (_steps(span) for span in (pairing.steps, pairing.control_steps))
    return f"to step {ours}" if ours == theirs else f"to step {ours}, the control to step {theirs}"


def _steps(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]} to {span[1]}"
