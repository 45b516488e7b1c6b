"""Every metric of every trial as tidy rows, and their means over seeds: the data behind figures."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields

from rltune.report.stats import as_rate, mean_over_seeds
from rltune.spec.records import TrialRecord

RATES = ("heldout/success_rate", "collapse/retrieval_accuracy")
"""Metrics whose mean and interval lie in [0, 1]."""

_LEFT_OUT = ("timing_s/", "perf/")


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric of one trial."""

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
        Point(record.spec.condition, record.spec.seed, row["step"], name, float(value))
        for record in records
        for row in record.metrics
        for name, value in row.items()
        if _is_number(value) and name not in ("step", "time") and not name.startswith(_LEFT_OUT)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def bands_of(points: Iterable[Point], metrics: Sequence[str]) -> list[Band]:
    """Return the mean over seeds of some metrics, at each step that any seed has."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for point in points:
        if point.metric in metrics:
            key = (point.condition, point.metric, point.step)
            found.setdefault(key, []).append(point.value)
    bands = []
    for (condition, metric, step), values in found.items():
        estimate = mean_over_seeds(values)
        estimate = as_rate(estimate) if metric in RATES else estimate
        low, high = (None, None) if estimate.interval is None else estimate.interval
        bands.append(Band(condition, metric, step, estimate.n, estimate.mean, low, high))
    return bands


def to_csv(rows: Sequence[Point] | Sequence[Band], kind: type[Point] | type[Band]) -> str:
    """Return rows as CSV with a header; what is None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(kind)])
    writer.writerows(astuple(row) for row in rows)
    return text.getvalue()
