"""The exception tree of rltune.

    RltuneError                  exit code 1
    |-- InputError               what a person gave is refused; exit code 2, nothing was started
    |   |-- SpecError            a sweep, profile or protocol file, or a --set override
    |   |-- ConfoundedError      the comparability proof failed
    |   |-- StoreError           a run folder, lineage file or marker cannot be used
    |   `-- ResourceError        the machine or cluster cannot hold what was asked for
    |-- TrialError               one trial cannot go on; the others do
    |   |-- DivergedError        a loss or a gradient is not finite
    |   |-- StaleEngineError     the engine does not serve the trainer's weights
    |   |-- EngineDiedError      the engine's process ended
    |   |-- RankDiedError        a process that trains a part of the trial ended
    |   |-- RemoteError          the training service failed, or did not answer in time
    |   |-- CheckpointError      a checkpoint is missing, torn or of another trial
    |   |-- FaultsError          too many episodes of several steps in a row had a fault
    |   |-- TrainOverrunError    a limit of the training steps was reached: time, calls or money
    |   `-- EvalOverrunError     a gate took longer than budget.eval_wall_s
    `-- InterruptedRun           stopped by a person or the system; exit code 3

Every message says what was given, where, what is allowed, and what to do next.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input.

    Attributes:
        where: File, and line or key path inside it: `sweeps/kl.yaml:12: axis.key`.
        what: What was given and why it cannot be used, the value in quotes.
        allowed: What would be accepted; empty when the sentence above says it.
        action: What to do next; empty when it follows from the above.

    """

    where: str
    what: str
    allowed: str = ""
    action: str = ""

    def __str__(self) -> str:
        """Return the one-line message: `where: what allowed action`."""
        return " ".join(
            part for part in (f"{self.where}: {self.what}", self.allowed, self.action) if part
        )


class RltuneError(Exception):
    """Base of every error that rltune raises on purpose."""

    exit_code = 1


class InputError(RltuneError):
    """What a person gave is refused. Carries every problem found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Problem | str | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            self.problems: tuple[Problem, ...] = ()
            super().__init__(problems)
            return
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SpecError(InputError):
    """A sweep, profile or protocol file, or an override, cannot be used."""


class ConfoundedError(InputError):
    """More than the declared axis differs between the conditions of a sweep."""


class StoreError(InputError):
    """A run folder, lineage file or marker cannot be used."""


class ResourceError(InputError):
    """The machine or cluster cannot hold what was asked for."""


class TrialError(RltuneError):
    """One trial cannot go on. Its sweep does."""


class DivergedError(TrialError):
    """A loss or a gradient is not finite."""


class StaleEngineError(TrialError):
    """The rollout engine does not serve the weights that the trainer holds."""


class EngineDiedError(TrialError):
    """The process of the rollout engine ended; the last checkpoint is kept."""


class RankDiedError(TrialError):
    """A process that trains a part of the trial ended; the last checkpoint is kept."""


class RemoteError(TrialError):
    """The training service failed or did not answer in time; the last checkpoint is kept."""


class CheckpointError(TrialError):
    """A checkpoint is missing, torn, or belongs to another trial."""


class FaultsError(TrialError):
    """Too many episodes of several steps in a row had a fault; the last checkpoint is kept."""


class TrainOverrunError(TrialError):
    """The training steps reached a limit of time, calls or money; the last checkpoint is kept."""


class EvalOverrunError(TrialError):
    """A held-out evaluation took longer than its wall limit; the last checkpoint is kept."""


class InterruptedRun(RltuneError):
    """Stopped by a person or the system before the end; the same command goes on."""

    exit_code = 3
