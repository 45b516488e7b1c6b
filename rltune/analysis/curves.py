"""Every metric of every trial as tidy rows, and their means over seeds."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from rltune.analysis.rates import is_rate_metric
from rltune.analysis.stats import as_rate, mean_over_seeds
from rltune.comparability.records import TrialRecord
from rltune.store.digest import is_deterministic


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric of one trial."""

    sweep: str
    condition: str
    seed: int
    step: int
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Band:
    """A metric of a condition at a step: the mean over seeds, and its 95 % t interval.

    Without a second seed there is no interval, and `low` and `high` are None.
    """

    condition: str
    metric: str
    step: int
    n_seeds: int
    mean: float
    low: float | None
    high: float | None


def points_of(records: Iterable[TrialRecord]) -> list[Point]:
    """Return every number of metrics.jsonl but those that tell of the machine, in file order."""
    return [
        Point(spec.sweep, spec.condition, spec.seed, row["step"], name, float(value))
        for record in records
        for spec in (record.spec,)
        for row in record.metrics
        for name, value in row.items()
        if _is_number(value) and name != "step" and is_deterministic(name)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def bands_of(
    points: Iterable[Point],
    metrics: Sequence[str],
    *,
    resolutions: Mapping[str, float] | None = None,
) -> list[Band]:
    """Return the mean over seeds of some metrics, at each step that any seed has.

    A value that is not finite does not count: its seed is missing from `n_seeds`. Where a trial
    names a step twice, the later row counts.

    Args:
        points: Values, of any metrics.
        metrics: Those to average, in the order of the rows.
        resolutions: Metric -> smallest step of it, as in `mean_over_seeds`.

    Returns:
        Rows by condition in the order of the points, then by metric, then by step.

    """
    by_seed: dict[tuple[str, str, int], dict[int, float]] = {}
    for point in points:
        if point.metric in metrics and math.isfinite(point.value):
            key = (point.condition, point.metric, point.step)
            by_seed.setdefault(key, {})[point.seed] = point.value
    order = {name: i for i, name in enumerate(dict.fromkeys(key[0] for key in by_seed))}
    ordered = sorted(by_seed, key=lambda key: (order[key[0]], metrics.index(key[1]), key[2]))
    known = resolutions or {}
    return [_band(*key, list(by_seed[key].values()), known.get(key[1], 0.0)) for key in ordered]


def _band(
    condition: str, metric: str, step: int, values: Sequence[float], resolution: float
) -> Band:
    estimate = mean_over_seeds(values, resolution=resolution)
    estimate = as_rate(estimate) if is_rate_metric(metric) else estimate
    low, high = (None, None) if estimate.interval is None else estimate.interval
    return Band(condition, metric, step, estimate.n, estimate.mean, low, high)


def to_csv(points: Iterable[Point]) -> str:
    """Return points as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Point.__slots__)
    writer.writerows(map(astuple, points))
    return text.getvalue()
