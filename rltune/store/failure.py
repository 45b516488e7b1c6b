"""How a trial ends without a result."""

from dataclasses import dataclass

from rltune.errors import (
    DivergedError,
    EvalOverrunError,
    InterruptedRun,
    TrainOverrunError,
)
from rltune.types import RowStatus, TrialStatus

# How a trial may end without a result, and what that makes of the trial.
_FAILURES = {
    RowStatus.CRASH: TrialStatus.FAILED,
    RowStatus.PREFLIGHT_CRASH: TrialStatus.FAILED,
    RowStatus.EVAL_BUDGET_OVERRUN: TrialStatus.FAILED,
    RowStatus.TRAIN_BUDGET_OVERRUN: TrialStatus.FAILED,
    RowStatus.SIZE_BLOCKED: TrialStatus.FAILED,
    RowStatus.HARNESS_ABORT: TrialStatus.FAILED,
    RowStatus.DIVERGED: TrialStatus.DIVERGED,
    RowStatus.PREEMPTED: TrialStatus.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class TrialFailure:
    """Why a trial ended without a result; the content of its FAILED marker."""

    kind: RowStatus  # the status that its lineage row gets
    reason: str  # one line for people
    traceback: str = ""  # Python traceback, or empty
    step: int | None = None  # training steps done; None when it died before the first gate
    attempt: int = 1  # which attempt, from 1

    def __post_init__(self) -> None:
        """Refuse a kind that is not a failure."""
        if self.kind not in _FAILURES:
            raise ValueError(
                f"{self.kind!r} is not a failure. Choose one of {', '.join(_FAILURES)}."
            )

    @property
    def trial_status(self) -> TrialStatus:
        """The trial's status under this failure."""
        return _FAILURES[self.kind]


def failure_kind(error: BaseException, *, step: int | None) -> RowStatus:
    """Classify what a trial raised after `step` training steps (None: before the first gate)."""
    if isinstance(error, DivergedError):
        return RowStatus.DIVERGED
    if isinstance(error, InterruptedRun | KeyboardInterrupt):
        return RowStatus.PREEMPTED
    if isinstance(error, TrainOverrunError):
        return RowStatus.TRAIN_BUDGET_OVERRUN
    if isinstance(error, EvalOverrunError):
        return RowStatus.EVAL_BUDGET_OVERRUN
    return RowStatus.PREFLIGHT_CRASH if step is None else RowStatus.CRASH
