"""State that Tune's thread and the driver's share: which trials run, and whose workers died."""

from collections import deque
from dataclasses import dataclass

from rltune.runner.waiting import Waiting


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A trial whose process died without writing a marker."""

    trial_id: str  # the trial
    reason: str  # one line
    is_machine_gone: bool  # whether the machine that ran it went, too: no fault of the trial's


class Watch:
    """State that the threads of Tune and of the driver share. Picklable: Tune insists."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.failures: deque[WorkerFailure] = deque()
        self.waiting: Waiting | None = None
        self.unschedulable: frozenset[str] = frozenset()
        self._waited_for: set[str] | None = None

    def drain_only(self, running: set[str]) -> None:
        """End the launch when these trials have ended.

        Trials that Tune starts later find the stop file and do nothing.
        """
        self._waited_for = running

    @property
    def is_drained(self) -> bool:
        """Whether the trials that the launch waits for have ended."""
        return self._waited_for is not None and not (self._waited_for & self.running)

    @property
    def is_unschedulable(self) -> bool:
        """Whether nothing runs, and no machine is left for what waits."""
        if self.running or self.waiting is None or not self.waiting.is_hopeless():
            return False
        self.unschedulable = self.waiting.trials
        return True
