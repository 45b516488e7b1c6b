"""How fast trials go, and how long the rest takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from rltune.store.jsonl import Row
from rltune.store.ledger import LedgerEvent

_RECENT = 20  # training steps that the speed is measured on
_EVAL = "timing_s/eval"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that the parts of a trial take; None where nothing was measured."""

    start_s: float | None = None  # from the start of its process to the end of the gate at step 0
    step_s: float | None = None  # median of the newest training steps, gates left out
    gate_s: float | None = None  # median of the gates


def timing_of(rows: Sequence[Row], *, started: float | None) -> Timing:
    """Return the timing of a trial.

    Args:
        rows: Its lines of metrics, oldest first.
        started: When the process of its first attempt started, in seconds since the epoch.

    """
    timed = [row for row in rows if "time" in row]
    gaps = [
        float(b["time"]) - float(a["time"]) - float(b.get(_EVAL, 0.0))
        for a, b in pairwise(timed[-_RECENT - 1 :])
    ]
    start_s = None
    if started is not None and timed and timed[0]["step"] == 0:
        start_s = float(timed[0]["time"]) - started
    return Timing(
        start_s=start_s if start_s is not None and start_s > 0 else None,
        step_s=_median(gap for gap in gaps if gap > 0),
        gate_s=_median(float(row[_EVAL]) for row in rows if _EVAL in row),
    )


def pooled(timings: Iterable[Timing]) -> Timing:
    """Return the median timing of several trials, each part over those that measured it."""
    known = list(timings)
    return Timing(
        *(
            _median(value for one in known if (value := getattr(one, name)) is not None)
            for name in Timing.__slots__
        )
    )


def gates_left(step: int, *, steps: int, every: int) -> int:
    """Return how many gates come after a step: every so many steps, and at the last."""
    if step >= steps:
        return 0
    return steps // every - step // every + (steps % every > 0)


def seconds_left(
    step: int | None, timing: Timing, *, steps: int, every: int, has_begun: bool
) -> float | None:
    """Return how long the rest of a trial takes; None when the time of a step is unknown.

    Args:
        step: Last training step done; None before the gate at step 0.
        timing: How fast it goes.
        steps: Training steps planned.
        every: Training steps between two gates.
        has_begun: Whether its process lives already; else its start is counted, too.

    """
    if timing.step_s is None:
        return None
    done = step or 0
    start = (timing.start_s or 0.0) if step is None or not has_begun else 0.0
    gates = gates_left(done, steps=steps, every=every) * (timing.gate_s or 0.0)
    return start + (steps - done) * timing.step_s + gates


def sweep_seconds_left(left: Sequence[float | None], *, at_once: int) -> float | None:
    """Return how long several trials take, so many at once: at least as long as the longest.

    None when one of them is of unknown length, or there is none.
    """
    known = [seconds for seconds in left if seconds is not None]
    if not known or len(known) < len(left):
        return None
    return max(*known, sum(known) / at_once) if len(known) > 1 else known[0]


def most_at_once(entries: Iterable[Mapping[str, Any]]) -> int:
    """Return how many trials the newest launch had under way at the same time, at least 1.

    Args:
        entries: Lines of ledger.jsonl.

    """
    moved = [row for row in entries if row.get("event") not in (None, LedgerEvent.PLANNED)]
    launch = max((str(row.get("launch", "")) for row in moved), default="")
    rows = [row for row in moved if row.get("launch") == launch]
    # A trial that ends and one that starts in the same second did not run together.
    rows.sort(key=lambda row: (str(row.get("time", "")), row["event"] == LedgerEvent.STARTED))
    live: set[str] = set()
    most = 1
    for row in rows:
        if row["event"] == LedgerEvent.STARTED:
            live.add(str(row.get("trial_id")))
        else:
            live.discard(str(row.get("trial_id")))
        most = max(most, len(live))
    return most


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return median(known) if known else None
