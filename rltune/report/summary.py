"""The closing table: held-out success of each condition, between chance and a perfect player.

Two columns come from the same gates and do not mean the same. `selected` is the best gate of each
trial: it was chosen on these very tasks and is therefore optimistic, and never below the start.
`final` is the last gate, which nothing chose; gains and differences are computed from it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltune.gate import Interval, wilson_interval
from rltune.report.audit import Audit
from rltune.report.folder import SweepFolder, manifest_of, open_warnings
from rltune.report.stats import (
    Estimate,
    as_rate,
    excludes_zero,
    family_confidence,
    mean_over_seeds,
    paired_difference,
)
from rltune.spec.findings import SEEDS_FOR_A_CLAIM
from rltune.spec.judged import judged_by_condition, judged_in, judged_line
from rltune.spec.records import TrialRecord

SUCCESS = "heldout/success_rate"
RATES = frozenset({SUCCESS, "heldout/em"})
"""Metrics that count tasks: they lie in [0, 1] and move by one task at least."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What random actions and a perfect player reach on the held-out tasks, exactly.

    Attributes:
        floor: Expected success rate of uniform random actions.
        ceiling: Success rate of a perfect player within the limits.
        tasks: Number of held-out tasks.
        is_exact: Whether the floor is exact; that of a verifier's success is measured.

    """

    floor: float
    ceiling: float
    tasks: int
    is_exact: bool = True


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
        claim: The same with the interval that holds for all conditions together.
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
    claim: Estimate | None
    bounds: Bounds | None


@dataclass(frozen=True, slots=True)
class Closing:
    """The closing table of a sweep.

    Attributes:
        metric_name: What is measured.
        rows: One a condition, control first.
        verdicts: What may be said from it, one sentence each.
        stamps: Hidden second axes that the sweep did not remedy and did not accept.
        judged: How much a judge left unjudged, by condition; empty when none was asked.

    """

    metric_name: str
    rows: tuple[ConditionRow, ...]
    verdicts: tuple[str, ...]
    stamps: tuple[str, ...]
    judged: str = ""


def close_sweep(folder: SweepFolder, records: Sequence[TrialRecord], audit: Audit) -> Closing:
    """Compute the closing table from the records of all trials, as far as their audit allows."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda record: not record.spec.is_control):
        groups.setdefault(record.spec.condition, []).append(record)
    control = next((g for g in groups.values() if g[0].spec.is_control), [])
    together = family_confidence(sum(not g[0].spec.is_control for g in groups.values()))
    rows = tuple(_row(folder, group, control, together) for group in groups.values())
    verdicts = _forbidden(audit) or _verdicts(rows, together)
    shares = judged_by_condition((r.spec.condition, judged_in(r.metrics)) for r in records)
    stamps = open_warnings(folder.run)
    return Closing(folder.metric_name, rows, tuple(verdicts), stamps, judged_line(shares))


def _forbidden(audit: Audit) -> list[str]:
    """Return why nothing may be said about the axis, in one line; nothing when it may."""
    if audit.confounded:
        return [f"CONFOUNDED, nothing follows about the axis. Run anyway: {audit.confounded}"]
    if not audit.report.ok:
        rules = ", ".join(sorted({item.rule for item in audit.report.errors}))
        return [f"No claim is made: the audit found errors ({rules})."]
    return []


def _row(
    folder: SweepFolder,
    group: Sequence[TrialRecord],
    control: Sequence[TrialRecord],
    together: float,
) -> ConditionRow:
    first = group[0].spec
    finals = _by_seed(group, _final)
    bases = _by_seed(group, lambda record: record.result.base_metric if record.result else None)
    chosen = _by_seed(group, lambda record: record.result.heldout_metric if record.result else None)
    is_rate, is_success = folder.metric_name in RATES, folder.metric_name == SUCCESS
    step = 1.0 / int(first.config["gate"]["tasks"]) if is_rate else 0.0
    final = mean_over_seeds(list(finals.values()), resolution=step)

    def against_control(confidence: float) -> Estimate | None:
        others = _by_seed(control, _final)
        return (
            None
            if first.is_control
            else paired_difference(finals, others, confidence=confidence, resolution=step)
        )

    return ConditionRow(
        condition=first.condition,
        is_control=first.is_control,
        planned=len(group),
        finished=len(finals),
        base=mean_over_seeds(list(bases.values())),
        selected=mean_over_seeds(list(chosen.values())),
        final=as_rate(final) if is_rate else final,
        final_of_one=_task_interval(group) if is_success and len(finals) == 1 else None,
        gain=paired_difference(finals, bases, resolution=step),
        difference=against_control(0.95),
        claim=against_control(together),
        bounds=bounds_of(folder, group[0]) if is_success else None,
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
    """Return the Wilson interval of the last gate of the one finished trial, faults left out."""
    record = next(record for record in group if record.result is not None)
    if not record.heldout or not isinstance(record.heldout[-1].get("success"), list):
        return None
    last = record.heldout[-1]
    faults = last.get("fault") or [""] * len(last["success"])
    success = [won for won, fault in zip(last["success"], faults, strict=True) if not fault]
    return wilson_interval(sum(success), len(success))


def bounds_of(folder: SweepFolder, record: TrialRecord) -> Bounds | None:
    """Return floor and ceiling of a trial's held-out tasks; None when they cannot be read."""
    manifest = manifest_of(folder.run, record)
    try:
        floor, ceiling = float(manifest["heldout_floor"]), float(manifest["heldout_ceiling"])
        is_exact = _is_env_success(record.spec.config.get("reward"))
        return Bounds(floor, ceiling, len(manifest["heldout"]), is_exact)
    except (KeyError, TypeError, ValueError):
        return None


def _is_env_success(reward: Mapping[str, Any] | None) -> bool:
    """Whether success is the env's own, whose floor is computed and not measured."""
    if reward is None:
        return True
    return bool(reward["terms"][0]["score"] == "success" and 0 < reward["threshold"] <= 1)


def _verdicts(rows: Sequence[ConditionRow], together: float) -> list[str]:
    """Return what the numbers allow to say about the conditions against the control.

    Args:
        rows: The closing table.
        together: Confidence of each comparison with which all together have 95 %.

    """
    seeds = min((row.planned for row in rows), default=0)
    if seeds < SEEDS_FOR_A_CLAIM:
        count = f"{seeds} seed{'' if seeds == 1 else 's'}"
        return [f"No claim can be made from {count}: at least {SEEDS_FOR_A_CLAIM} are needed."]
    control = next((row for row in rows if row.is_control), None)
    if control is None or control.finished < control.planned:
        done = f"{control.finished} of {control.planned}" if control is not None else "no"
        return [f"No condition is ranked: {done} seeds of the control finished."]
    others = [row for row in rows if row.claim is not None]
    said = [_verdict(row) for row in others]
    if len(others) > 1:
        said.append(
            f"Above and below are judged at {together:.1%} each, which is 95 % for the "
            f"{len(others)} comparisons together (Bonferroni); the table's intervals are 95 % each."
        )
    return said


def _verdict(row: ConditionRow) -> str:
    if row.finished < row.planned:  # those that survived are no sample of those that were planned
        return f"{row.condition} is not ranked: {row.finished} of {row.planned} seeds finished."
    if row.claim is None or not excludes_zero(row.claim):
        return f"{row.condition} is not separable from the control."
    side = "above" if row.claim.mean > 0 else "below"
    return f"{row.condition} ends {side} the control."
