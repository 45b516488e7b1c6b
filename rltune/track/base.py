"""The tracker contract: a trial's metrics go to trackers, and trackers never steer the trial."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rltune.types import TrialStatus

Metrics = Mapping[str, float | str]
"""Metric name -> number, or text such as a task hash. `step` is not a metric."""

Warn = Callable[[str], None]
"""Takes one line about tracking that went wrong while training goes on."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to look through, such as the episodes of a gate."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | bool, ...], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values fell between two neighbouring edges."""

    counts: tuple[int, ...]  # one a bin
    edges: tuple[float, ...]  # of the bins, ascending: one more than there are bins


Media = Mapping[str, Table | Histogram]
"""Name -> what a tracker shows beside the metrics of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Something that trials make from each other; equal names and files are the same artifact."""

    name: str  # of letters, digits, `-`, `_` and `.`
    kind: Literal["model", "tasks"]  # `model` or `tasks`
    files: Mapping[str, Path]  # name in the artifact -> the file; they must stay as they are
    metadata: Mapping[str, str | float] = field(default_factory=dict)  # what is known about it
    aliases: tuple[str, ...] = ()  # further names of this version


class Tracker:
    """Where the metrics of one trial go; this one drops them. Used by one process in one thread."""

    @property
    def shows_media(self) -> bool:
        """Whether tables and histograms are worth making."""
        return False

    def resume(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Take what earlier attempts logged, up to the step from which the trial goes on.

        Rows are those of metrics.jsonl, in order; none when the trial begins.
        """

    def media(self, step: int, items: Media) -> None:
        """Show tables and histograms of a step."""

    def use(self, artifact: Artifact) -> None:
        """Record what the trial is made from."""

    def make(self, artifact: Artifact) -> None:
        """Record what the trial made."""

    def log(self, step: int, metrics: Metrics) -> None:
        """Record what was measured after `step` training steps. Steps never go backwards."""

    def summary(self, values: Metrics) -> None:
        """Record what the whole trial comes to."""

    def close(self, status: TrialStatus) -> None:
        """Record how the trial ended and finish. A second call does nothing."""


class MultiTracker(Tracker):
    """Several trackers as one, in order; each call goes to all of them."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = tuple(trackers)

    @property
    def shows_media(self) -> bool:
        """Whether one of them does."""
        return any(tracker.shows_media for tracker in self.trackers)

    def resume(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Pass it on."""
        for tracker in self.trackers:
            tracker.resume(rows)

    def media(self, step: int, items: Media) -> None:
        """Pass it on."""
        for tracker in self.trackers:
            tracker.media(step, items)

    def use(self, artifact: Artifact) -> None:
        """Pass it on."""
        for tracker in self.trackers:
            tracker.use(artifact)

    def make(self, artifact: Artifact) -> None:
        """Pass it on."""
        for tracker in self.trackers:
            tracker.make(artifact)

    def log(self, step: int, metrics: Metrics) -> None:
        """Pass it on."""
        for tracker in self.trackers:
            tracker.log(step, metrics)

    def summary(self, values: Metrics) -> None:
        """Pass it on."""
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
