"""Named evaluation sets at the end of training: EM, F1 and success of each, over the seeds."""

import re
from collections.abc import Iterable, Sequence

from rltune.analysis.stats import as_rate, mean_over_seeds
from rltune.analysis.tables import BenchmarkRow, HistoryRow, TrialRow

MACRO = "macro"
MEASURES = ("em", "f1", "success_rate")
_METRIC = re.compile(rf"heldout/(\w+)/({'|'.join(MEASURES)})")


def is_benchmark(metric: str) -> bool:
    """Return whether a metric is one of a named set."""
    return _METRIC.fullmatch(metric) is not None


def benchmark_rows(trials: Sequence[TrialRow], history: Iterable[HistoryRow]) -> list[BenchmarkRow]:
    """Return a row for each set, measure and condition; empty without named sets.

    The last gate of each finished trial counts. A set that faults took from a trial leaves that
    trial out of its row.
    """
    finished = {row.trial_id: row for row in trials if row.final is not None}
    values: dict[tuple[str, str, str], list[float]] = {}
    order: dict[tuple[str, str], None] = {}
    for row in history:
        found, trial = _METRIC.fullmatch(row.metric), finished.get(row.trial_id)
        if found is None or trial is None or row.step != trial.final_step or row.value is None:
            continue
        order[(found[1], found[2])] = None
        values.setdefault((found[1], found[2], row.condition), []).append(row.value)
    conditions = dict.fromkeys((row.condition, row.is_control, row.mark) for row in trials)
    sets = list(dict.fromkeys(name for name, _ in order))
    keys = sorted(
        order, key=lambda key: (key[0] == MACRO, sets.index(key[0]), MEASURES.index(key[1]))
    )
    return [
        _row(name, measure, condition, is_control, mark, values[name, measure, condition])
        for name, measure in keys
        for condition, is_control, mark in conditions
        if (name, measure, condition) in values
    ]


def _row(
    benchmark: str,
    measure: str,
    condition: str,
    is_control: bool,
    mark: str,
    values: Sequence[float],
) -> BenchmarkRow:
    estimate = as_rate(mean_over_seeds(values))
    low, high = estimate.interval or (None, None)
    return BenchmarkRow(
        condition, is_control, benchmark, measure, estimate.n, estimate.mean, low, high, mark
    )
