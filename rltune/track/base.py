"""The tracker contract: a trial's metrics go to trackers, and trackers never steer the trial."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from rltune.types import TrialStatus

Metrics = Mapping[str, float | str]
"""Metric name -> number, or text such as a task hash. `step` is not a metric."""

Warn = Callable[[str], None]
"""Takes one line about tracking that went wrong while training goes on."""


class Tracker(Protocol):
    """Where the metrics of one trial go. Used by one process, from one thread."""

    def log(self, step: int, metrics: Metrics) -> None:
        """Record what was measured after `step` training steps. Steps never go backwards."""

    def summary(self, values: Metrics) -> None:
        """Record what the whole trial comes to."""

    def close(self, status: TrialStatus) -> None:
        """Say how the trial ended and finish. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class MultiTracker:
    """Several trackers as one, in order."""

    trackers: Sequence[Tracker]

    def log(self, step: int, metrics: Metrics) -> None:
        """Record in each."""
        for tracker in self.trackers:
            tracker.log(step, metrics)

    def summary(self, values: Metrics) -> None:
        """Record in each."""
        for tracker in self.trackers:
            tracker.summary(values)

    def close(self, status: TrialStatus) -> None:
        """Close each, also when closing another raises."""
        with ExitStack() as stack:
            for tracker in reversed(self.trackers):  # the stack runs backwards
                stack.callback(tracker.close, status)


def require_step(step: int, metrics: Metrics) -> None:
    """Refuse what would make the step axis ambiguous.

    Raises:
        ValueError: The step is negative, or `step` is among the metrics.

    """
    if step < 0:
        raise ValueError(f"step {step} is negative; 0 is before training")
    if "step" in metrics:
        raise ValueError("'step' is the axis of every metric, not a metric; pass it as step=")
