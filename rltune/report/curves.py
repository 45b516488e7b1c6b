"""Every metric of every trial as tidy rows, without what tells of the machine."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields

from rltune.spec.records import TrialRecord

_LEFT_OUT = ("timing_s/", "perf/")


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric of one trial."""

    sweep: str
    condition: str
    seed: int
    step: int
    metric: str
    value: float


def points_of(records: Iterable[TrialRecord]) -> list[Point]:
    """Return every number of metrics.jsonl but those that tell of the machine, in file order."""
    return [
        Point(spec.sweep, spec.condition, spec.seed, row["step"], name, float(value))
        for record in records
        for spec in (record.spec,)
        for row in record.metrics
        for name, value in row.items()
        if _is_number(value) and name not in ("step", "time") and not name.startswith(_LEFT_OUT)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_csv(points: Sequence[Point]) -> str:
    """Return points as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Point)])
    writer.writerows(astuple(row) for row in points)
    return text.getvalue()
