"""The record of truth: one JSON object per training step."""

from collections.abc import Callable, Mapping, Sequence

from rltune.track.base import Artifact, Media, Metrics, require_step
from rltune.types import TrialStatus

Append = Callable[[Mapping[str, object]], None]
"""Appends one record durably: `partial(append_jsonl, trial.metrics)` of `rltune.store.jsonl`."""


class JsonlTracker:
    """Hand each step's metrics to the metrics file, numbers and text alike.

    It raises when a record cannot be written: a trial whose metrics are lost must stop.
    The summary and the status are in the trial's DONE and FAILED markers, not here; what media and
    artifacts are made from lies beside the file.

    Args:
        append: Writes one record. Passed in, since trackers and stores do not know each other.

    """

    def __init__(self, append: Append) -> None:
        self._append = append
        self._is_closed = False

    def log(self, step: int, metrics: Metrics) -> None:
        """Append `{"step": step, **metrics}`."""
        require_step(step, metrics)
        if self._is_closed:
            raise ValueError(f"step {step} was logged after close")
        self._append({"step": step, **metrics})

    @property
    def shows_media(self) -> bool:
        """A file of numbers shows none."""
        return False

    def resume(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write nothing; the rows are from this file."""

    def media(self, step: int, items: Media) -> None:
        """Write nothing."""

    def use(self, artifact: Artifact) -> None:
        """Write nothing; provenance.json has it."""

    def make(self, artifact: Artifact) -> None:
        """Write nothing; the card has it."""

    def summary(self, values: Metrics) -> None:
        """Write nothing; the DONE marker has it."""

    def close(self, status: TrialStatus) -> None:
        """Accept no more records."""
        self._is_closed = True
