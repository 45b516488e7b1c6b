"""Which trials a launch may start: at most `--max-trials`, and none that cannot finish in time."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rltune.errors import InputError
from rltune.spec.identity import flatten
from rltune.store.files import read_json, write_json_atomic
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import RunDir, trial_status
from rltune.store.speed import Speed, speed_key, step_speeds
from rltune.types import TrialSpec, TrialStatus

DECLINED = "declined"  # folder of a launch with one file for each trial that was not started
_ORDER = (TrialStatus.RUNNING, TrialStatus.INTERRUPTED, TrialStatus.PENDING, TrialStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a launch should be over. Picklable: each trial checks it before it starts."""

    at: float  # seconds since the epoch
    # speed key -> seconds of a step in an earlier run; for a sweep without steps of its own
    prior: Mapping[str, float] = field(default_factory=dict)
    source: str = ""  # where `prior` was measured


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Estimated time of the rest of a trial."""

    trial_id: str  # the trial
    steps: int  # training steps left
    step_s: float | None  # seconds of one; None when nothing was measured anywhere
    start_s: float  # seconds before the first; 0 for a trial that has begun
    source: str  # where it was measured

    @property
    def seconds(self) -> float | None:
        """Seconds of the rest; None when they are unknown."""
        return None if self.step_s is None else self.start_s + self.step_s * self.steps


@dataclass(frozen=True, slots=True)
class Declined:
    """A trial that was not started, and the seconds that were left."""

    estimate: TimeEstimate
    left_s: float


def estimate(run: RunDir, spec: TrialSpec, deadline: Deadline) -> TimeEstimate:
    """Estimate the rest of a trial from the best measurement there is.

    That is: the sweep's own trials with the same work a step; else its slowest others; else an
    earlier run, as in the plan; else nothing, and `step_s` is None.
    """
    rows = {
        other.trial_id: [row for row in read_metrics(other.metrics).rows if "step" in row]
        for other in run.trial_dirs()
        if other.spec.is_file()
    }
    speeds = step_speeds((run.trial(name).read_spec().config, own) for name, own in rows.items())
    done = max((int(row["step"]) for row in rows.get(spec.trial_id, [])), default=0)
    steps = max(0, int(flatten(spec.config)["budget.steps"]) - done)
    speed, source = _speed(spec, speeds, deadline)
    if speed is None:
        return TimeEstimate(spec.trial_id, steps, None, 0.0, source)
    start_s = 0.0 if rows.get(spec.trial_id) else speed.start_s
    return TimeEstimate(spec.trial_id, steps, speed.step_s, start_s, source)


def _speed(
    spec: TrialSpec, speeds: Mapping[str, Speed], deadline: Deadline
) -> tuple[Speed | None, str]:
    key = speed_key(spec.config)
    if key in speeds:
        return speeds[key], f"measured on {speeds[key].steps} steps of this sweep"
    if speeds:
        slowest = max(speeds.values(), key=lambda speed: speed.step_s)
        return slowest, f"measured on {slowest.steps} steps of another condition of this sweep"
    if key in deadline.prior:
        return Speed(deadline.prior[key], 0), f"the plan's estimate, from {deadline.source}"
    return None, "nothing was measured yet"


def decline(run: RunDir, spec: TrialSpec, deadline: Deadline | None) -> Declined | None:
    """Return a trial that cannot finish in time as declined; None if it may start.

    One of unknown length may start: it is what the others are measured by.
    """
    if deadline is None:
        return None
    left, rest = deadline.at - time.time(), estimate(run, spec, deadline)
    is_late = left <= 0 if rest.seconds is None else rest.seconds > left
    return Declined(rest, max(0.0, left)) if is_late else None


def first_trials(run: RunDir, todo: Sequence[TrialSpec], limit: int | None) -> list[TrialSpec]:
    """Return the trials to run: first those begun, then new ones, then failed ones.

    Without a limit their order is left alone.
    """
    if limit is None:
        return list(todo)
    rank = {spec.trial_id: _ORDER.index(trial_status(run.trial(spec.trial_id))) for spec in todo}
    return sorted(todo, key=lambda spec: rank[spec.trial_id])[:limit]


def startable(
    run: RunDir, todo: Sequence[TrialSpec], deadline: Deadline | None, limit: int | None
) -> tuple[list[TrialSpec], list[Declined]]:
    """Return the trials that may start, and those that cannot finish by the deadline.

    Each is asked again when its turn comes: by then more is measured, and less time is left.
    """
    refusals = {spec.trial_id: decline(run, spec, deadline) for spec in todo}
    may = [spec for spec in todo if refusals[spec.trial_id] is None]
    declined = [late for late in refusals.values() if late is not None]
    return first_trials(run, may, limit), declined


def write_declined(launch: Path, declined: Declined) -> None:
    """Record for the driver that a trial was not started."""
    folder = launch / DECLINED
    folder.mkdir(exist_ok=True)
    write_json_atomic(folder / f"{declined.estimate.trial_id}.json", declined)


def read_declined(launch: Path) -> list[Declined]:
    """Return the trials of a launch that were not started."""
    declined = []
    for path in sorted((launch / DECLINED).glob("*.json")):
        try:
            data = read_json(path)
            declined.append(Declined(TimeEstimate(**data["estimate"]), float(data["left_s"])))
        except (InputError, KeyError, TypeError, ValueError):
            continue  # only the message is lost: the trial is not done, and runs later
    return declined


_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
_UNITS = (86400, 3600, 60, 1)  # seconds of d, h, m, s


def seconds_of(text: str) -> float:
    """Return `8h`, `1h30m` or `45s` in seconds; 0 for what is not a duration.

    No number of a unit has more than nine digits: hundreds of digits would be no number of seconds.
    """
    match = _DURATION.fullmatch(text.strip())
    parts = match.groups(default="0") if match is not None else ()
    return float(sum(int(part) * unit for part, unit in zip(parts, _UNITS, strict=False)))
