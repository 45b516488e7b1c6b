"""Which metrics are rates: they lie in [0, 1]."""

from rltune.comparability.records import TrialRecord
from rltune.gate import MACRO, set_metric

SUCCESS = "heldout/success_rate"
RETRIEVAL = "collapse/retrieval_accuracy"

_TASK_RATES = frozenset({SUCCESS, "heldout/em"})
_RATES = _TASK_RATES | {RETRIEVAL, "rollout/success_rate", "rollout/filter_kept_ratio"}


def is_rate_metric(metric: str) -> bool:
    """Return whether a metric lies in [0, 1]."""
    return metric in _RATES or set_metric(metric) is not None


def counts_tasks(metric: str) -> bool:
    """Return whether a metric is a rate of held-out tasks, all or those of a named set."""
    found = set_metric(metric)
    if found is None:
        return metric in _TASK_RATES
    return found.name != MACRO and f"heldout/{found.measure}" in _TASK_RATES


def resolution_of(metric: str, *, tasks: int) -> float:
    """Return the smallest step of a metric: one held-out task for a rate over all of them, else 0.

    That of a named set depends on the size of the set and is not given.
    """
    return 1.0 / tasks if tasks and metric in _TASK_RATES else 0.0


def recorded_resolution(metric: str, record: TrialRecord) -> float:
    """Return the same for the gates of a trial."""
    return resolution_of(metric, tasks=int(record.spec.config["gate"]["tasks"]))
