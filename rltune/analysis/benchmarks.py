"""Named evaluation sets at the end of training: EM, F1 and success of each, over the seeds."""

from collections.abc import Iterable, Sequence

from rltune.analysis.stats import as_rate, mean_over_seeds
from rltune.analysis.tables import BenchmarkRow, HistoryRow, TrialRow
from rltune.gate import MACRO, SET_MEASURES, set_metric


def benchmark_rows(trials: Sequence[TrialRow], history: Iterable[HistoryRow]) -> list[BenchmarkRow]:
    """Return a row for each set, measure and condition; empty without named sets.

    The last gate of each finished trial counts. A set that faults took from a trial leaves that
    trial out of its row.
    """
    finished = {row.trial_id: row for row in trials if row.final is not None}
    values: dict[tuple[str, str, str], list[float]] = {}
    order: dict[tuple[str, str], None] = {}
    for row in history:
        found, trial = set_metric(row.metric), finished.get(row.trial_id)
        if found is None or trial is None or row.step != trial.final_step or row.value is None:
            continue
        order[found] = None
        values.setdefault((*found, row.condition), []).append(row.value)
    conditions = dict.fromkeys((row.condition, row.is_control, row.mark) for row in trials)
    sets = list(dict.fromkeys(name for name, _ in order))
    keys = sorted(
        order, key=lambda key: (key[0] == MACRO, sets.index(key[0]), SET_MEASURES.index(key[1]))
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
