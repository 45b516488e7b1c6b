"""The record of truth: one JSON object per training step."""

from collections.abc import Callable, Mapping

from rltune.track.base import Metrics, Tracker, require_step
from rltune.types import TrialStatus

Append = Callable[[Mapping[str, object]], None]
"""Appends one record durably: `partial(append_jsonl, trial.metrics)` of `rltune.store.jsonl`."""


class JsonlTracker(Tracker):
    """Hand each step's metrics to the metrics file, numbers and text alike.

    It raises when a record cannot be written: a trial whose metrics are lost must stop.
    Summary and status are in the markers DONE and FAILED, inputs in provenance.json and outputs in
    the model card.

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

    def close(self, status: TrialStatus) -> None:
        """Accept no more records."""
        self._is_closed = True
