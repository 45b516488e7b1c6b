"""looks.jsonl: what each look of a sweep with seeds until decided counted and found.

Which seeds a look counted is known from here alone, since a trial that failed may be run again and
end later; what it found can be computed from the trials again, and the audit does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rltune.store.files import to_json
from rltune.store.jsonl import append_jsonl_many, read_jsonl


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRecord:
    """One look at one condition: a line of looks.jsonl."""

    time: str
    launch: str  # of the driver
    condition: str  # its label
    planned: int  # seeds that were planned until this look
    seeds: Sequence[int]  # those that both this condition and the control had ended
    mean: float | None  # mean difference to the control
    low: float | None  # repeated confidence interval
    high: float | None
    p: float | None  # of the paired t test, unadjusted
    boundary: float | None  # the p at which this look decides; None with too few seeds to look
    decision: str  # `different`, `practically equal`, `go on`


def append_looks(path: Path, looks: Sequence[LookRecord]) -> None:
    """Append looks; durable when this returns."""
    append_jsonl_many(path, map(to_json, looks))


def read_looks(path: Path) -> tuple[LookRecord, ...]:
    """Return every look that can be read, in order; of one look twice the first."""
    found: dict[tuple[str, int], LookRecord] = {}
    for row in read_jsonl(path).rows:
        look = _look(row)
        if look is not None:
            found.setdefault((look.condition, look.planned), look)
    return tuple(found.values())


def _look(row: Mapping[str, Any]) -> LookRecord | None:
    names = {field.name for field in fields(LookRecord)}
    try:
        look = LookRecord(**{name: row[name] for name in names})
        return look if all(isinstance(seed, int) for seed in look.seeds) else None
    except (KeyError, TypeError):
        return None


def first_looks(looks: Sequence[LookRecord]) -> dict[tuple[str, int], int]:
    """Return (condition, seed) -> the seeds that were planned at the first look that counted it."""
    first: dict[tuple[str, int], int] = {}
    for look in sorted(looks, key=lambda look: look.planned):
        for seed in look.seeds:
            first.setdefault((look.condition, seed), look.planned)
    return first
