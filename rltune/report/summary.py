"""The closing table: held-out success of each condition, between chance and a perfect player.

Two columns come from the same gates and do not mean the same. `selected` is the best gate of each
trial: it was chosen on these very tasks and is therefore optimistic, and never below the start.
`final` is the last gate, which nothing chose; gains and differences are computed from it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rltune.gate import Interval, wilson_interval
from rltune.report.folder import SweepFolder, confounded_reason, manifest_of
from rltune.report.stats import (
    SEEDS_FOR_A_CLAIM,
    Estimate,
    as_rate,
    excludes_zero,
    mean_over_seeds,
    paired_difference,
)
from rltune.spec.records import TrialRecord

SUCCESS = "heldout/success_rate"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What random actions and a perfect player reach on the held-out tasks, exactly.

    Attributes:
        floor: Expected success rate of uniform random actions.
        ceiling: Success rate of a perfect player within the limits.
        tasks: Number of held-out tasks.

    """

    floor: float
    ceiling: float
    tasks: int


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One line of the closing table.

    Attributes:
        condition: Its label.
        is_control: Whether the others are compared with it.
        planned: Seeds planned.
        finished: Seeds with a result; the numbers are over these.
        base: Metric before training.
        selected: Metric at the gate's choice.
        final: Metric at the last gate.
        final_of_one: With one seed only: Wilson interval of its last gate, over tasks.
        gain: final - base, seed by seed.
        difference: final - the control's final, seed by seed; None for the control.
        bounds: None when the metric is no success rate or the manifest is missing.

    """

    condition: str
    is_control: bool
    planned: int
    finished: int
    base: Estimate
    selected: Estimate
    final: Estimate
    final_of_one: Interval | None
    gain: Estimate
    difference: Estimate | None
    bounds: Bounds | None


@dataclass(frozen=True, slots=True)
class Closing:
    """The closing table of a sweep.

    Attributes:
        metric_name: What is measured.
        rows: One a condition, control first.
        verdicts: What may be said from it, one sentence each.

    """

    metric_name: str
    rows: tuple[ConditionRow, ...]
    verdicts: tuple[str, ...]


def close_sweep(folder: SweepFolder, records: Sequence[TrialRecord]) -> Closing:
    """Compute the closing table from the records of all trials."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda record: not record.spec.is_control):
        groups.setdefault(record.spec.condition, []).append(record)
    control = next((g for g in groups.values() if g[0].spec.is_control), [])
    rows = tuple(_row(folder, group, control) for group in groups.values())
    reason = confounded_reason(folder.run)
    verdicts = [f"CONFOUNDED, nothing follows about the axis. Run anyway: {reason}"]
    return Closing(folder.metric_name, rows, tuple(verdicts if reason else _verdicts(rows)))


def _row(
    folder: SweepFolder, group: Sequence[TrialRecord], control: Sequence[TrialRecord]
) -> ConditionRow:
    first = group[0].spec
    finals = _by_seed(group, _final)
    bases = _by_seed(group, lambda record: record.result.base_metric if record.result else None)
    chosen = _by_seed(group, lambda record: record.result.heldout_metric if record.result else None)
    final = mean_over_seeds(list(finals.values()))
    is_rate = folder.metric_name == SUCCESS
    return ConditionRow(
        condition=first.condition,
        is_control=first.is_control,
        planned=len(group),
        finished=len(finals),
        base=mean_over_seeds(list(bases.values())),
        selected=mean_over_seeds(list(chosen.values())),
        final=as_rate(final) if is_rate else final,
        final_of_one=_task_interval(group) if is_rate and len(finals) == 1 else None,
        gain=paired_difference(finals, bases),
        difference=None
        if first.is_control
        else paired_difference(finals, _by_seed(control, _final)),
        bounds=_bounds(folder, group[0]) if is_rate else None,
    )


def _final(record: TrialRecord) -> float | None:
    return record.result.final_metric if record.result is not None else None


def _by_seed(
    group: Sequence[TrialRecord], metric: Callable[[TrialRecord], float | None]
) -> Mapping[int, float]:
    """Return seed -> metric of the finished trials whose metric is a number."""
    values = {record.spec.seed: metric(record) for record in group}
    return {s: value for s, value in values.items() if value is not None and math.isfinite(value)}


def _task_interval(group: Sequence[TrialRecord]) -> Interval | None:
    """Return the Wilson interval of the last gate of the one finished trial."""
    record = next(record for record in group if record.result is not None)
    if not record.heldout or not isinstance(record.heldout[-1].get("success"), list):
        return None
    success = record.heldout[-1]["success"]
    return wilson_interval(sum(success), len(success))


def _bounds(folder: SweepFolder, record: TrialRecord) -> Bounds | None:
    manifest = manifest_of(folder.run, record)
    try:
        floor, ceiling = float(manifest["heldout_floor"]), float(manifest["heldout_ceiling"])
        return Bounds(floor, ceiling, len(manifest["heldout"]))
    except (KeyError, TypeError, ValueError):
        return None


def _verdicts(rows: Sequence[ConditionRow]) -> list[str]:
    """Return what the numbers allow to say about the conditions against the control."""
    others = [row for row in rows if row.difference is not None]
    seeds = min((row.difference.n for row in others if row.difference), default=0)
    if seeds < SEEDS_FOR_A_CLAIM:
        count = f"{seeds} seed{'' if seeds == 1 else 's'}"
        return [f"No claim can be made from {count}: at least {SEEDS_FOR_A_CLAIM} are needed."]
    said = [_verdict(row.condition, row.difference) for row in others if row.difference]
    if len(others) > 1:
        said.append(f"The {len(others)} intervals are 95 % each, not 95 % together.")
    return said


def _verdict(condition: str, difference: Estimate) -> str:
    if not excludes_zero(difference):
        return f"{condition} is not separable from the control."
    side = "above" if difference.mean > 0 else "below"
    return f"{condition} ends {side} the control."
