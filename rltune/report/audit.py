"""The audit of a run folder: read what the trials left, judge it, write audit.json."""

from dataclasses import dataclass
from typing import Any

from rltune.errors import Problem
from rltune.report.folder import RecordsRead, SweepFolder
from rltune.spec.audit import AuditReport, audit_trials
from rltune.store.files import to_json, utc_now, write_json_atomic


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit says.

    Attributes:
        report: The findings of A1 to A5.
        trials: Trials of the sweep.
        started: Those with any record.
        finished: Those with a result.
        problems: Lines that could not be read; the audit did not see them.

    """

    report: AuditReport
    trials: int
    started: int
    finished: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether the trials prove a comparison: there are some, and no rule found an error."""
        return self.report.ok and self.started > 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of audit.json."""
        return {
            "ok": self.ok,
            "time": utc_now(),
            "trials": self.trials,
            "started": self.started,
            "finished": self.finished,
            "errors": to_json(self.report.errors),
            "warnings": to_json(self.report.warnings),
            "budget": to_json(self.report.budget),
            "unreadable": [str(problem) for problem in self.problems],
        }


def audit_folder(folder: SweepFolder, read: RecordsRead) -> Audit:
    """Judge the trials of a run folder and write audit.json into it."""
    audit = Audit(
        audit_trials(read.records),
        trials=len(folder.specs),
        started=sum(record.has_started for record in read.records),
        finished=sum(record.result is not None for record in read.records),
        problems=read.problems,
    )
    write_json_atomic(folder.run.audit, audit.to_json())
    return audit
