"""Estimates over seeds for figures: which interval is drawn, and where none may be."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rltune.analysis.table_summary import CONFIDENCE, estimate_of
from rltune.analysis.tables import HistoryRow, TrialRow
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.maths.interval import Interval
from rltune.report.figures.records import BOOTSTRAP, IQM, Mean, SeedLine, T

BOOTSTRAP_FROM = 10
"""Seeds from which on a bootstrap covers what it says; below, the t interval does (coverage.py)."""


_ROUNDING = 1e-9  # relative: what differs by less is equal


class Estimation(NamedTuple):
    """How values of several seeds become one: `mean` or `iqm`, `t` or `bootstrap`, level."""

    estimator: str
    method: str
    level: float


def estimation_for(trials: Sequence[TrialRow], estimator: str) -> Estimation:
    """Return how to estimate: the interval is t below ten planned seeds, unless of an iqm."""
    counts: dict[str, int] = {}
    for row in trials:
        counts[row.condition] = counts.get(row.condition, 0) + 1
    is_bootstrap = estimator == IQM or min(counts.values()) >= BOOTSTRAP_FROM
    return Estimation(estimator, BOOTSTRAP if is_bootstrap else T, CONFIDENCE)


def lines_of(
    trials: Sequence[TrialRow], history: Sequence[HistoryRow], metric: str
) -> dict[str, tuple[SeedLine, ...]]:
    """Return the values of one measure: condition -> one line per trial that has any.

    A value that is not finite is no value. Where a trial names a step twice, the later one counts.
    """
    values: dict[str, dict[int, float]] = {}
    for row in history:
        if row.metric == metric and row.value is not None:
            values.setdefault(row.trial_id, {})[row.step] = row.value
    by_condition: dict[str, list[SeedLine]] = {}
    for trial in trials:
        own = sorted(values.get(trial.trial_id, {}).items())
        if own:
            steps, numbers = zip(*own, strict=True)
            line = SeedLine(trial.trial_id, trial.seed, trial.status, steps, numbers)
            by_condition.setdefault(trial.condition, []).append(line)
    return {condition: tuple(lines) for condition, lines in by_condition.items()}


def means_of(
    lines: Sequence[SeedLine], how: Estimation, *, resolution: float, is_rate: bool
) -> tuple[Mean, ...]:
    """Return the estimate over the trials of a condition at each step that they share.

    A step counts if every trial that got at least so far has a value there: where one stopped
    between two gates, its last value does not stand for all. Trials that ended before are missing.

    Args:
        lines: Of its trials.
        how: Estimator and interval.
        resolution: Smallest step of the measure; 0 if not known.
        is_rate: Whether the interval is cut to [0, 1].

    """
    by_step: dict[int, list[float]] = {}
    for line in lines:
        for step, value in zip(line.steps, line.values, strict=True):
            by_step.setdefault(step, []).append(value)
    return tuple(
        _mean(step, values, len(lines), how, resolution, is_rate)
        for step, values in sorted(by_step.items())
        if len(values) == sum(line.steps[-1] >= step for line in lines)
    )


def _mean(
    step: int,
    values: Sequence[float],
    n_began: int,
    how: Estimation,
    resolution: float,
    is_rate: bool,
) -> Mean:
    value, interval = estimate_of(
        values,
        estimator=how.estimator,
        method=how.method,
        resolution=resolution,
        is_rate=is_rate,
    )
    assert value is not None  # a step is here because a value is
    is_partial = len(values) < n_began
    if interval is None or is_partial or len(values) < SEEDS_FOR_A_CLAIM or _is_flat(interval):
        return Mean(step, len(values), value, None, None, is_partial)
    return Mean(step, len(values), value, interval.low, interval.high, is_partial)


def _is_flat(interval: Interval) -> bool:
    """Tell whether an interval has no width: the seeds did not differ, so nothing bounds them."""
    return interval.high - interval.low <= _ROUNDING * max(abs(interval.low), abs(interval.high))


def counts_of(lines: Mapping[str, Sequence[SeedLine]]) -> list[int]:
    """Return how many seeds each condition has."""
    return [len(found) for found in lines.values()]
