"""The closing table: held-out success of each condition, between chance and a perfect player.

Two columns come from the same gates and do not mean the same. `selected` is the best gate of each
trial: it was chosen on these very tasks and is therefore optimistic, and never below the start.
`final` is the last gate, which nothing chose; gains and differences are computed from it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltune.analysis.audit import Audit
from rltune.analysis.compare_sides import last_gate
from rltune.analysis.ends import end_of
from rltune.analysis.power import closing_power
from rltune.analysis.rates import SUCCESS, is_rate_metric, recorded_resolution
from rltune.analysis.stats import Estimate, as_rate, mean_over_seeds, paired_difference
from rltune.analysis.tables import against, mark_of
from rltune.analysis.verdict import verdicts
from rltune.analysis.verdict_words import Verdict
from rltune.comparability.audit_same_run import one_runs
from rltune.comparability.judged import judged_by_condition, judged_in, judged_line
from rltune.comparability.records import TrialRecord
from rltune.comparability.scored import scored_line
from rltune.gate import wilson_interval
from rltune.lineage.noise import scores_of
from rltune.maths.interval import Interval
from rltune.store.proof import open_warnings, same_runs
from rltune.store.run_folder import SweepFolder, manifest_of
from rltune.store.service_usage import ServiceUsage, known_usage, money


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the random and a perfect player reach on the held-out tasks, as far as it is known."""

    floor: float | None  # expected success rate of the random player; None where unknown
    # how it is known: `exact`, `measured`, `start` where only the base gate is; empty: not recorded
    floor_kind: str
    interval: Interval | None  # Wilson interval of a measured floor, over its episodes
    ceiling: float | None  # success rate of a perfect player within the limits; None where unknown
    tasks: int  # number of held-out tasks
    # whether an expert or a gold response solved them before training, or a ceiling is known
    is_proved: bool = True


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One line of the closing table."""

    condition: str  # its label
    is_control: bool  # whether the others are compared with it
    planned: int  # seeds planned
    finished: int  # seeds with a result; the numbers are over these
    base: Estimate  # metric before training
    selected: Estimate  # metric at the gate's choice
    final: Estimate  # metric at the last gate
    final_of_one: Interval | None  # Wilson interval over tasks, with one seed only
    gain: Estimate  # final - base, seed by seed
    difference: Estimate | None  # to the control's final, paired by seed; None for the control
    verdict: Verdict | None  # None for the control
    bounds: Bounds | None  # None when the metric is not a success rate or the manifest is missing


@dataclass(frozen=True, slots=True)
class Closing:
    """The closing table of a sweep."""

    metric_name: str  # what is measured
    rows: tuple[ConditionRow, ...]  # one per condition, control first
    verdicts: tuple[str, ...]  # one sentence per condition
    stamps: tuple[str, ...]  # hidden second axes that the sweep did not remedy and did not accept
    judged: str = ""  # how much a judge left unjudged, by condition; empty when none was asked
    scored: str = ""  # which last gates lost tasks to faults; empty when none did
    service: str = ""  # what all trials asked of a training service, and its cost; empty for none
    warnings: tuple[str, ...] = ()  # of the results of single trials, with the trials
    power: str = ""  # what the seeds could show, where a condition is not separable


def close_sweep(folder: SweepFolder, records: Sequence[TrialRecord], audit: Audit) -> Closing:
    """Compute the closing table from the records of all trials, as far as their audit allows."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda record: not record.spec.is_control):
        groups.setdefault(record.spec.condition, []).append(record)
    found = verdicts_of_records(folder, records, audit)
    of_condition = {one.condition: one for one in found}
    rows = tuple(_row(folder, group, of_condition.get(name)) for name, group in groups.items())
    sentences = [*_forbidden(audit), *(f"{one.condition}: {one.sentence}." for one in found)]
    shares = judged_by_condition((r.spec.condition, judged_in(r.metrics)) for r in records)
    stamps = open_warnings(folder.run)
    return Closing(
        metric_name=folder.metric_name,
        rows=rows,
        verdicts=tuple(sentences),
        stamps=stamps,
        judged=judged_line(shares),
        scored=scored_line(records),
        service=_service(folder),
        warnings=_trial_warnings(records),
        power=closing_power(
            [end_of(record) for record in records],
            found,
            one_runs=one_runs(audit.report.warnings),
            resolution=recorded_resolution(folder.metric_name, records[0]),
        ),
    )


def _service(folder: SweepFolder) -> str:
    """Return what the trials asked of a training service, and what one cost on average."""
    usages = [known_usage(folder.run.trial(spec.trial_id).service) for spec in folder.specs]
    asked = [usage for usage in usages if usage.requests]
    whole = sum(asked, ServiceUsage())
    if not whole.paid:
        return whole.text
    mean = {currency: amount / len(asked) for currency, amount in whole.paid.items()}
    return f"{whole.text}: {money(mean)} a trial"


def _trial_warnings(records: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Return each warning of a result once, behind the trials that have it."""
    whose: dict[str, list[str]] = {}
    for record in records:
        for warning in record.result.warnings if record.result else ():
            whose.setdefault(warning, []).append(f"{record.spec.condition}@{record.spec.seed}")
    return tuple(f"{', '.join(names)}: {warning}." for warning, names in whose.items())


def verdicts_of_records(
    folder: SweepFolder, records: Sequence[TrialRecord], audit: Audit
) -> tuple[Verdict, ...]:
    """Return the verdict about each condition but the control, in the order of the plan."""
    return verdicts(
        [end_of(record) for record in records],
        resolution=recorded_resolution(folder.metric_name, records[0]),
        against=against(mark_of(audit)),
        same_runs=same_runs(folder.run),
    )


def _forbidden(audit: Audit) -> list[str]:
    """Return why no claim about the axis is allowed, in one line; empty when it is."""
    if audit.confounded:
        return [f"CONFOUNDED, nothing follows about the axis. Run anyway: {audit.confounded}"]
    if not audit.report.ok:
        rules = ", ".join(sorted({item.rule for item in audit.report.errors}))
        return [f"No claim is made: the audit found errors ({rules})."]
    return []


def _row(
    folder: SweepFolder,
    group: Sequence[TrialRecord],
    verdict: Verdict | None,
) -> ConditionRow:
    first = group[0].spec
    finals = _by_seed(group, "final_metric")
    bases = _by_seed(group, "base_metric")
    chosen = _by_seed(group, "heldout_metric")
    is_rate, is_success = is_rate_metric(folder.metric_name), folder.metric_name == SUCCESS
    step = recorded_resolution(folder.metric_name, group[0])
    final = mean_over_seeds(list(finals.values()), resolution=step)
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
        difference=verdict.difference if verdict is not None else None,
        verdict=verdict,
        bounds=bounds_of(folder, group[0]) if is_success else None,
    )


def _by_seed(group: Sequence[TrialRecord], metric: str) -> Mapping[int, float]:
    """Return seed -> a metric of the results, of those where it is a number."""
    values = {r.spec.seed: getattr(r.result, metric) for r in group if r.result is not None}
    return {seed: value for seed, value in values.items() if math.isfinite(value)}


def _task_interval(group: Sequence[TrialRecord]) -> Interval | None:
    """Return the Wilson interval of the last gate of the one finished trial, faults left out."""
    record = next(r for r in group if r.result is not None and math.isfinite(r.result.final_metric))
    scores = scores_of(last_gate(record), SUCCESS)
    if scores is None:
        return None
    known = [int(score) for score in scores if score is not None]
    return wilson_interval(sum(known), len(known))


def bounds_of(folder: SweepFolder, record: TrialRecord) -> Bounds | None:
    """Return floor and ceiling of a trial's held-out tasks; None when they cannot be read."""
    manifest = manifest_of(folder.run, record)
    try:
        floor, ceiling = manifest["heldout_floor"], manifest["heldout_ceiling"]
        if not isinstance(floor, Mapping):  # an older manifest has the rate alone
            floor = {"rate": float(floor), "kind": "", "n": None}
        is_measured = floor["n"] is not None
        return Bounds(
            floor["rate"],
            str(floor["kind"]),
            wilson_interval(floor["successes"], floor["n"]) if is_measured else None,
            ceiling,
            len(manifest["heldout"]),
            is_proved=manifest.get("proved") != "none" or ceiling is not None,
        )
    except (KeyError, TypeError, ValueError):
        return None
