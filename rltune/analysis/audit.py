"""Audit a run folder: read the trials' records, judge them, write audit.json."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rltune.analysis.gate_audit import gate_findings
from rltune.analysis.history_audit import history_findings
from rltune.analysis.look_audit import look_findings
from rltune.analysis.memory_use import MemoryUse, memory_uses
from rltune.analysis.plan_audit import plan_findings
from rltune.comparability.audit import AuditReport, audit_trials
from rltune.comparability.records import TrialRecord
from rltune.errors import Problem
from rltune.store.digest import rows_digest
from rltune.store.files import to_json, utc_now, write_json_atomic
from rltune.store.lock import read_driver
from rltune.store.proof import confounded_reason
from rltune.store.run_folder import RecordsRead, SweepFolder


class AuditVerdict(StrEnum):
    """The outcome of an audit."""

    PASSED = "passed"  # what ran is comparable, and there is something to compare
    INCOMPLETE = "incomplete"  # no error, but not yet the control and another condition finished
    CONFOUNDED = "confounded"  # run although more than the axis differs; nothing follows
    FAILED = "failed"  # a rule found an error


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        report: The findings of A1 to A8.
        trials: Trials of the sweep.
        started: Those with any record.
        finished: Those with a result.
        has_comparison: Whether the control and another condition have a finished trial each.
        confounded: Why the sweep ran although its proof failed; empty when the proof holds.
        problems: Lines that could not be read; the audit did not see them.
        memory: What each condition held, against its plan.

    """

    report: AuditReport
    trials: int
    started: int
    finished: int
    has_comparison: bool
    confounded: str
    problems: tuple[Problem, ...]
    memory: tuple[MemoryUse, ...] = ()

    @property
    def verdict(self) -> AuditVerdict:
        """What the records come to; an error outweighs the rest."""
        if not self.report.ok:
            return AuditVerdict.FAILED
        if self.confounded:
            return AuditVerdict.CONFOUNDED
        return AuditVerdict.PASSED if self.has_comparison else AuditVerdict.INCOMPLETE

    @property
    def ok(self) -> bool:
        """Whether the trials prove a comparison."""
        return self.verdict is AuditVerdict.PASSED

    def to_json(self) -> dict[str, Any]:
        """Return the content of audit.json."""
        return {
            "ok": self.ok,
            "verdict": self.verdict.value,
            "confounded": self.confounded or None,
            "time": utc_now(),
            "trials": self.trials,
            "started": self.started,
            "finished": self.finished,
            "errors": to_json(self.report.errors),
            "warnings": to_json(self.report.warnings),
            "budget": to_json(self.report.budget),
            "memory": to_json(self.memory),
            "unreadable": [str(problem) for problem in self.problems],
        }


def audit_folder(folder: SweepFolder, read: RecordsRead) -> Audit:
    """Judge the trials of a run folder and write audit.json into it."""
    audit = judge_folder(folder, read)
    write_json_atomic(folder.run.audit, audit.to_json())
    return audit


def judge_folder(folder: SweepFolder, read: RecordsRead) -> Audit:
    """Judge the trials of a run folder."""
    is_driven = read_driver(folder.run.lock) is not None
    of_folder = (
        *gate_findings(folder.metric_name, read.records),
        *look_findings(folder, read.records),
        *plan_findings(folder, read.records),
        *history_findings(folder, read.records),
    )
    return Audit(
        audit_trials(
            read.records, is_driven=is_driven, altered=_altered(read.records), of_folder=of_folder
        ),
        trials=len(folder.specs),
        started=sum(record.has_started for record in read.records),
        finished=sum(record.result is not None for record in read.records),
        has_comparison=_has_comparison(read.records),
        confounded=confounded_reason(folder.run),
        problems=read.problems,
        memory=memory_uses(read.records),
    )


def _altered(records: Sequence[TrialRecord]) -> list[str]:
    """Return the trials whose metrics are not those that their result was made from."""
    return [
        record.spec.trial_id
        for record in records
        if record.result is not None
        and record.result.metrics_sha256  # a result without a digest proves nothing either way
        and rows_digest(record.metrics) != record.result.metrics_sha256
    ]


def _has_comparison(records: Sequence[TrialRecord]) -> bool:
    finished = {
        (record.spec.condition, record.spec.is_control)
        for record in records
        if record.result is not None
    }
    return len(finished) > 1 and any(is_control for _, is_control in finished)
