"""A1 to A8: checks of what ran, from the records of the trials. Pure functions."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rltune.comparability.audit_inputs import same_inputs
from rltune.comparability.audit_prompts import grouped, same_prompts
from rltune.comparability.audit_provenance import OTHER_TASKS, same_provenance
from rltune.comparability.audit_same_run import same_runs
from rltune.comparability.audit_staleness import same_staleness
from rltune.comparability.audit_text import by_value, few, sides
from rltune.comparability.consumption import Consumption, budget_findings, consumption
from rltune.comparability.findings import Finding, error, split, warning
from rltune.comparability.judged import judged_findings
from rltune.comparability.knobs import moving_task_keys, task_settings
from rltune.comparability.records import TrialRecord as TrialRecord
from rltune.comparability.scored import is_same_mean, last_scored, scored_in
from rltune.spec.identity import canonical_json, sha256_hex
from rltune.types import RowStatus, TrialResult, TrialStatus
from rltune_envs.faults import FAULT_SHARE


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the records of a sweep prove."""

    ok: bool  # whether there is no error
    errors: tuple[Finding, ...]  # findings after which a figure must say that it proves nothing
    warnings: tuple[Finding, ...]  # findings that are stamped on figures
    budget: Consumption  # what each condition consumed, means over its trials


def audit_trials(
    records: Sequence[TrialRecord],
    *,
    is_driven: bool,
    altered: Collection[str] = (),
    of_folder: Sequence[Finding] = (),
) -> AuditReport:
    """Return what A1 to A8 find in the trials of one sweep.

    Trials that have not started prove nothing and break nothing: A4 names them. Nor does one that
    died before it measured anything have a provenance to compare.

    Args:
        records: Its trials.
        is_driven: Whether a driver lives; without one, a trial that has no marker will get none.
        altered: Ids of the trials whose metrics are not those that their result was made from.
        of_folder: What was found in the other files of their folder: A5 and A8, and A4 of looks.

    """
    started = [record for record in records if record.has_started]
    measured = [record for record in started if record.metrics]
    spent = consumption(started)
    findings = (
        *same_provenance(measured),
        *same_inputs(measured),
        *same_prompts(started),
        *budget_findings(spent),
        *judged_findings(started),
        *same_length(records, is_driven=is_driven),
        *same_evaluation(started),
        *same_staleness(started),
        *same_runs(started),
        *_altered_metrics(altered),
        *of_folder,
    )
    errors, warnings = split(findings)
    return AuditReport(not errors, errors, warnings, spent)


def env_key(record: TrialRecord) -> str:
    """Return what makes two trials' tasks comparable: the hash of their env section."""
    return sha256_hex(canonical_json(record.spec.config.get("env", {})))


def same_length(records: Sequence[TrialRecord], *, is_driven: bool) -> Iterator[Finding]:
    """Yield A4: trials that ended short, with the reason where one is named."""
    for record in records:
        finding = _length_finding(record, is_driven=is_driven)
        if finding is not None:
            yield finding


def _length_finding(record: TrialRecord, *, is_driven: bool) -> Finding | None:
    name, step, wanted = record.spec.trial_id, record.last_step, record.planned_steps
    if record.result is not None:
        return _result_finding(record, record.result)
    if record.failure is not None:
        reason = record.failure.get("reason") or ""
        if not reason:
            return error("A4", f"{name} failed at step {step} without a reason.", _RESUME)
        verb = "stopped" if record.failure.get("kind") == RowStatus.PREEMPTED else "failed"
        return warning("A4", f"{name} {verb} at step {step} of {wanted}: {reason}.", _RESUME)
    if not record.has_started:
        return warning("A4", f"{name} has not started.", _RESUME)
    if is_driven:
        return warning("A4", f"{name} is at step {step} of {wanted}.", "Wait for its driver.")
    message = f"{name} is at step {step} of {wanted}, has no marker, and nobody drives it."
    return error("A4", message, _RESUME)


def _result_finding(record: TrialRecord, result: TrialResult) -> Finding | None:
    name, reached, wanted = record.spec.trial_id, result.final_step, record.planned_steps
    again = "Delete this trial and run it again."
    if record.last_step != reached:
        message = f"{name} claims step {reached}, but its metrics end at step {record.last_step}."
        return error("A4", message, again)
    if reached > wanted:
        return error("A4", f"{name} ended at step {reached}, after the planned {wanted}.", again)
    if reached == wanted:
        return None
    if result.status is TrialStatus.DONE or not result.reason:
        return error("A4", f"{name} ended at step {reached} of {wanted} without a reason.", again)
    message = f"{name} stopped at step {reached} of {wanted}: {result.reason}."
    return warning("A4", message, "Report it as an early stop; it is not a success.")


_RESUME = "Run `rltune sweep` again; it goes on with what is missing."


def same_evaluation(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A5: trials that were evaluated on other tasks, otherwise, or at other steps.

    Other tasks are an error between configs that give the same ones, and a warning where the axis
    changes them.
    """
    remedy = "Delete these trials and run them again."
    keys = moving_task_keys(record.spec.config for record in records)
    is_asked = len({record.spec.config["gate"]["temperature"] for record in records}) > 1
    for field in ("tasks_sha256", "n", "temperature", "do_sample"):
        is_of_tasks = field in ("tasks_sha256", "n")
        groups = grouped(records, task_settings) if is_of_tasks else [records]
        parts = [found for group in groups if len(found := _heldout(group, field)) > 1]
        for found in parts:
            action = remedy if is_of_tasks or not is_asked else _ONE_TEMPERATURE
            yield error("A5", f"held-out {field} differs: {sides(found)}.", action)
        everywhere = _heldout(records, field)
        if keys and not parts and len(everywhere) > 1:
            message = f"held-out {field} differs with {', '.join(keys)}: {sides(everywhere)}."
            yield warning("A5", message, OTHER_TASKS)
    yield from _gate_steps(records, remedy)
    yield from _gate_faults(records)
    yield from _claimed_metrics(records, remedy)


_ONE_TEMPERATURE = "Their configs ask for it: give all conditions one gate.temperature."


def _gate_faults(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield how many held-out episodes had a fault: the rates are over the others."""
    remedy = "Repair what failed (trial.log names it) and run them again."
    gates = {r.spec.trial_id: list(map(scored_in, r.heldout)) for r in records}
    spoiled = [name for name, own in gates.items() if any(gate.words for gate in own)]
    if spoiled:
        lost = sum(gate.asked - gate.n for own in gates.values() for gate in own)
        message = (
            f"{lost} held-out episodes had a fault and were left out, in {few(spoiled)}: these "
            "were evaluated on fewer tasks."
        )
        yield warning("A5", message, remedy)
    for record in records:
        gate = last_scored(record)
        has_result = record.result is not None and math.isfinite(record.result.final_metric)
        if gate is not None and gate.is_lost and has_result:
            message = (
                f"{record.spec.trial_id} has a result, though its last gate scored {gate.words} "
                f"held-out tasks: over {FAULT_SHARE:.0%} lost to faults prove nothing."
            )
            yield error("A5", message, remedy)


def _claimed_metrics(records: Sequence[TrialRecord], remedy: str) -> Iterator[Finding]:
    """Yield results whose metric is none that the last gate measured."""
    for record in records:
        value = math.nan if record.result is None else record.result.final_metric
        measured = [
            row[name]
            for row in record.metrics
            if row["step"] == record.last_step
            for name in row
            if name.startswith("heldout/") and isinstance(row[name], int | float)
        ]
        if not measured or not math.isfinite(value):
            continue
        if not any(is_same_mean(value, one) for one in measured):
            message = (
                f"{record.spec.trial_id} claims {value:g}, which its last gate did not measure."
            )
            yield error("A5", message, remedy)


def _altered_metrics(names: Collection[str]) -> Iterator[Finding]:
    """Yield the trials whose metrics changed after they ended."""
    if names:
        message = (
            f"metrics.jsonl was changed after the trial ended, in {few(sorted(names))}: its digest "
            "is not the metrics_sha256 of the DONE marker."
        )
        yield error("A5", message, "Restore the file, or delete these trials and run them again.")


def _heldout(group: Sequence[TrialRecord], field: str) -> dict[str, list[str]]:
    return by_value((r.spec.trial_id, row.get(field)) for r in group for row in r.heldout)


def _gate_steps(group: Sequence[TrialRecord], remedy: str) -> Iterator[Finding]:
    """Yield trials whose gates were not at the steps that the config asks for."""
    for record in group:
        real = [row["step"] for row in record.heldout]
        wanted = record.gate_steps
        optional = {record.last_step} - set(wanted)
        if [step for step in real if step not in optional] != wanted:
            message = f"{record.spec.trial_id} was evaluated at steps {real}, not {wanted}."
            yield error("A5", message, remedy)
