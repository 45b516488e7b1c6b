"""A1 to A5: what really ran, read back from the records of the trials. Pure functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltune.spec.consumption import Consumption, budget_findings, consumption
from rltune.spec.findings import Finding, error, split, warning
from rltune.spec.identity import canonical_json, flatten, sha256_hex
from rltune.spec.keys import overlaps
from rltune.spec.problems import show
from rltune.spec.records import TrialRecord as TrialRecord
from rltune.types import TrialStatus

SAME_EVERYWHERE = (
    "commit",
    "dirty",
    "diff_sha256",
    "versions",
    "device",
    "dtype",
    "engine",
    "weights_sha256",
    "manifest_sha256",
)
"""Provenance fields that A1 compares."""

DEPENDS_ON = {
    "dtype": ("policy.dtype", "policy.model"),
    "engine": ("rollout.engine",),
    "weights_sha256": ("policy.model", "policy.dtype"),
    "manifest_sha256": ("env",),
}
"""Provenance field -> config keys that change it; an axis over them is compared per value."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the records of a sweep prove.

    Attributes:
        ok: Whether there is no error.
        errors: Findings after which a figure must say that it proves nothing.
        warnings: Findings that are stamped on figures.
        budget: What each condition consumed, means over its trials.

    """

    ok: bool
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    budget: Consumption


def audit_trials(records: Sequence[TrialRecord]) -> AuditReport:
    """Return what A1 to A5 find in the trials of one sweep.

    Trials that have not started prove nothing and break nothing: A4 names them. Nor does one that
    died before it measured anything have a provenance to compare.
    """
    started = [record for record in records if record.has_started]
    measured = [record for record in started if record.metrics]
    spent = consumption(started)
    findings = (
        *same_provenance(measured),
        *same_prompts(started),
        *budget_findings(spent),
        *same_length(records),
        *same_evaluation(started),
    )
    errors, warnings = split(findings)
    return AuditReport(not errors, errors, warnings, spent)


def _by_value(values: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    """Return shown value -> trial ids, in order of appearance."""
    groups: dict[str, list[str]] = {}
    for trial_id, value in values:
        groups.setdefault(show(value), []).append(trial_id)
    return groups


def _sides(groups: Mapping[str, Sequence[str]]) -> str:
    """Return `x in a, b; y in c`, long lists of trials shortened."""
    return "; ".join(f"{value} in {_few(trials)}" for value, trials in groups.items())


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def env_key(record: TrialRecord) -> str:
    """Return what makes two trials' tasks comparable: the hash of their env section."""
    return sha256_hex(canonical_json(record.spec.config.get("env", {})))


def _comparable(records: Sequence[TrialRecord], field: str) -> list[list[TrialRecord]]:
    """Return records in groups whose config lets a provenance field be equal."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in records:
        flat = flatten(record.spec.config)
        keys = DEPENDS_ON.get(field, ())
        own = {k: v for k, v in flat.items() if any(overlaps(k, key) for key in keys)}
        groups.setdefault(canonical_json(own), []).append(record)
    return list(groups.values())


def same_provenance(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A1: trials that ran with other code, packages, device, weights or tasks."""
    remedy = "Run the sweep again from one clean checkout on one kind of machine."
    for field in SAME_EVERYWHERE:
        for group in _comparable(records, field):
            yield from _field_findings(group, field, remedy)


def _field_findings(group: Sequence[TrialRecord], field: str, remedy: str) -> Iterator[Finding]:
    absent = [r.spec.trial_id for r in group if field not in r.provenance]
    if absent:
        yield error("A1", f"{field} was not recorded in {_few(absent)}.", remedy)
    present = [record for record in group if field in record.provenance]
    if field == "versions":
        names = sorted({name for r in present for name in r.provenance[field]})
        fields = [
            (
                f"version of {name}",
                [(r.spec.trial_id, r.provenance[field].get(name)) for r in present],
            )
            for name in names
        ]
    else:
        fields = [(field, [(r.spec.trial_id, r.provenance[field]) for r in present])]
    for name, values in fields:
        groups = _by_value(values)
        if len(groups) > 1:
            yield error("A1", f"{name} differs: {_sides(groups)}.", remedy)


def same_prompts(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A2: a seed and step at which two conditions drew other tasks."""
    groups: dict[tuple[int, str], list[TrialRecord]] = {}
    for record in records:
        groups.setdefault((record.spec.seed, env_key(record)), []).append(record)
    for (seed, _), group in groups.items():
        yield from _unrecorded_tasks(group)
        hashes = {record.spec.trial_id: record.task_hashes for record in group}
        for step in sorted({step for stream in hashes.values() for step in stream}):
            drawn = [(name, stream[step]) for name, stream in hashes.items() if step in stream]
            sides = _by_value(drawn)
            if len(sides) > 1:
                message = f"seed {seed} drew other tasks from step {step} on: {_sides(sides)}."
                yield error("A2", message, "Delete these trials and run them again.")
                break


def _unrecorded_tasks(group: Sequence[TrialRecord]) -> Iterator[Finding]:
    for record in group:
        missing = sorted(set(range(1, record.last_step + 1)) - set(record.task_hashes))
        if missing:
            message = f"{record.spec.trial_id} has no task hash for step {missing[0]}."
            yield error("A2", message, "Delete this trial and run it again.")


def same_length(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A4: trials that ended short, with the reason where one is named."""
    for record in records:
        finding = _length_finding(record)
        if finding is not None:
            yield finding


def _length_finding(record: TrialRecord) -> Finding | None:
    name, wanted = record.spec.trial_id, record.planned_steps
    again = "Run `rltune sweep` again; it goes on with what is missing."
    if record.result is not None:
        reached = record.result.final_step
        if record.last_step != reached:
            message = (
                f"{name} claims step {reached}, but its metrics end at step {record.last_step}."
            )
            return error("A4", message, "Delete this trial and run it again.")
        if reached >= wanted:
            return None
        if record.result.status is TrialStatus.DONE or not record.result.reason:
            message = f"{name} ended at step {reached} of {wanted} without a reason."
            return error("A4", message, "Delete this trial and run it again.")
        message = f"{name} stopped at step {reached} of {wanted}: {record.result.reason}."
        return warning("A4", message, "Report it as an early stop; it is no success.")
    if record.failure is not None:
        reason = record.failure.get("reason") or ""
        if not reason:
            return error("A4", f"{name} failed at step {record.last_step} without a reason.", again)
        message = f"{name} failed at step {record.last_step} of {wanted}: {reason}."
        return warning("A4", message, again)
    state = (
        f"is at step {record.last_step} of {wanted}" if record.has_started else "has not started"
    )
    return warning("A4", f"{name} {state}.", again)


def same_evaluation(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A5: trials that were evaluated on other tasks, otherwise, or at other steps."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(env_key(record), []).append(record)
    remedy = "Delete these trials and run them again."
    for group in groups.values():
        for field in ("tasks_sha256", "temperature", "n"):
            values = [
                (record.spec.trial_id, row.get(field)) for record in group for row in record.heldout
            ]
            sides = {v: list(dict.fromkeys(t)) for v, t in _by_value(values).items()}
            if len(sides) > 1:
                yield error("A5", f"held-out {field} differs: {_sides(sides)}.", remedy)
        yield from _gate_steps(group, remedy)


def _gate_steps(group: Sequence[TrialRecord], remedy: str) -> Iterator[Finding]:
    """Yield trials whose gates were not at the steps that the config asks for."""
    for record in group:
        real = [row["step"] for row in record.heldout]
        wanted = record.gate_steps
        optional = {record.last_step} - set(wanted)
        if [step for step in real if step not in optional] != wanted:
            message = f"{record.spec.trial_id} was evaluated at steps {real}, not {wanted}."
            yield error("A5", message, remedy)
