"""Which metrics are rates: they lie in [0, 1]."""

from rltune.comparability.records import TrialRecord

SUCCESS = "heldout/success_rate"
RETRIEVAL = "collapse/retrieval_accuracy"

TASK_RATES = frozenset({SUCCESS, "heldout/em"})
"""Rates that count held-out tasks: they move by one task at least."""

RATES = TASK_RATES | {RETRIEVAL, "rollout/success_rate", "rollout/filter_kept_ratio"}
"""All rates."""


def resolution_of(metric: str, *, tasks: int) -> float:
    """Return the smallest step of a metric: one held-out task for a task rate, else 0."""
    return 1.0 / tasks if tasks and metric in TASK_RATES else 0.0


def recorded_resolution(metric: str, record: TrialRecord) -> float:
    """Return the same for the gates of a trial."""
    return resolution_of(metric, tasks=int(record.spec.config["gate"]["tasks"]))
