"""The state of every trial of a run folder, from its files alone: no Ray, no running process."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from rltune.errors import InputError
from rltune.report.folder import SweepFolder
from rltune.spec.judged import Judged, judged_in
from rltune.store.cleaning import size_of
from rltune.store.files import read_json
from rltune.store.jsonl import Row, read_metrics
from rltune.store.lock import DriverInfo, read_driver
from rltune.store.rundir import TrialDir, trial_status
from rltune.types import TrialSpec, TrialStatus

BAD = frozenset({TrialStatus.FAILED, TrialStatus.DIVERGED})
ENDED = BAD | {TrialStatus.DONE, TrialStatus.STOPPED_EARLY}
_RECENT = 20  # steps that the speed is measured on


@dataclass(frozen=True, slots=True)
class TrialState:
    """Where one trial is.

    Attributes:
        trial_id: Its folder's name.
        condition: Label of its axis value.
        seed: Its seed.
        is_control: Whether it belongs to the control condition.
        status: What its files prove; a trial without a living driver is interrupted, not running.
        step: Last training step with metrics; None before the gate at step 0.
        steps: Training steps planned.
        base: Metric of the gate at step 0.
        last: Metric of the newest gate.
        last_gate: Step of that gate.
        best_step: Step that the gate chose; None before the end.
        tokens_per_s: Newest sampling speed.
        step_s: Median seconds of the last training steps, gates included.
        eta_s: Seconds that the rest takes at that speed; None when it does not run.
        silent_s: Seconds since the last line of metrics; None when it does not run.
        reason: Why it failed or stopped; empty otherwise.
        log: Its log file.
        judged: Episodes that a judge was asked about, and those that it judged.
        warnings: What its card warns of: training success that rose while held-out success fell.

    """

    trial_id: str
    condition: str
    seed: int
    is_control: bool
    status: TrialStatus
    step: int | None
    steps: int
    base: float | None
    last: float | None
    last_gate: int | None
    best_step: int | None
    tokens_per_s: float | None
    step_s: float | None
    eta_s: float | None
    silent_s: float | None
    reason: str
    log: str
    judged: Judged
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepState:
    """Where a sweep is.

    Attributes:
        path: Its run folder.
        name: Its name.
        title: Its title.
        metric_name: The metric that base and last hold.
        driver: Who drives it now; None when nobody does.
        size_bytes: Disk that its folder takes.
        trials: One a trial, in the order of the plan.

    """

    path: str
    name: str
    title: str
    metric_name: str
    driver: DriverInfo | None
    size_bytes: int
    trials: tuple[TrialState, ...]

    def count(self, *statuses: TrialStatus) -> int:
        """Return how many trials have one of these statuses."""
        return sum(trial.status in statuses for trial in self.trials)

    @property
    def has_failed(self) -> bool:
        """Whether a trial failed or diverged."""
        return self.count(*BAD) > 0

    @property
    def eta_s(self) -> float | None:
        """Seconds until all trials ended, at the speed of those that run; None when none does."""
        running = [trial for trial in self.trials if trial.status is TrialStatus.RUNNING]
        speeds = [trial.step_s for trial in running if trial.step_s is not None]
        if not speeds:
            return None
        left = sum(t.steps - (t.step or 0) for t in self.trials if t.status not in ENDED)
        return left * median(speeds) / len(running)


Stamp = tuple[int, int]  # time and size of a metrics file


@dataclass(slots=True)
class StatusReader:
    """Reads the state of one run folder again and again; unchanged trials are read once.

    Args:
        folder: The run folder.

    """

    folder: SweepFolder
    _cache: dict[str, tuple[Stamp, tuple[Row, ...]]] = field(default_factory=dict)

    def read(self, *, now: float | None = None) -> SweepState:
        """Return the state at `now` (seconds since the epoch; None is the clock's)."""
        now = time.time() if now is None else now
        driver = read_driver(self.folder.run.lock)
        trials = tuple(
            self._trial(spec, is_driven=driver is not None, now=now) for spec in self.folder.specs
        )
        return SweepState(
            path=str(self.folder.run.path),
            name=self.folder.name,
            title=self.folder.title,
            metric_name=self.folder.metric_name,
            driver=driver,
            size_bytes=size_of(self.folder.run.path),
            trials=trials,
        )

    def _trial(self, spec: TrialSpec, *, is_driven: bool, now: float) -> TrialState:
        trial = self.folder.run.trial(spec.trial_id)
        status, reason = _status(trial, is_driven=is_driven)
        rows = self._metrics(trial)
        metric = self.folder.metric_name
        gates = [(row["step"], float(row[metric])) for row in rows if metric in row]
        failure = trial.read_failed()
        step = max((row["step"] for row in rows), default=failure.step if failure else None)
        steps = int(spec.config["budget"]["steps"])
        runs = status is TrialStatus.RUNNING
        speed = _step_seconds(rows)
        result = trial.read_done()
        return TrialState(
            trial_id=spec.trial_id,
            condition=spec.condition,
            seed=spec.seed,
            is_control=spec.is_control,
            status=status,
            step=step,
            steps=steps,
            base=gates[0][1] if gates and gates[0][0] == 0 else None,
            last=gates[-1][1] if gates else None,
            last_gate=gates[-1][0] if gates else None,
            best_step=result.best_step if result else None,
            tokens_per_s=_newest(rows, "perf/tokens_per_s"),
            step_s=speed,
            eta_s=(steps - (step or 0)) * speed if runs and speed is not None else None,
            silent_s=max(0.0, now - float(rows[-1].get("time", now))) if runs and rows else None,
            reason=reason,
            log=str(trial.log),
            judged=judged_in(rows),
            warnings=_warnings(trial) if result else (),
        )

    def _metrics(self, trial: TrialDir) -> tuple[Row, ...]:
        stamp = _stamp(trial)
        cached = self._cache.get(trial.trial_id)
        if cached is None or cached[0] != stamp:
            rows = read_metrics(trial.metrics).rows
            cached = stamp, tuple(row for row in rows if isinstance(row.get("step"), int))
            self._cache[trial.trial_id] = cached
        return cached[1]


def _stamp(trial: TrialDir) -> Stamp:
    if not trial.metrics.exists():
        return 0, 0
    stat = trial.metrics.stat()
    return stat.st_mtime_ns, stat.st_size


def _status(trial: TrialDir, *, is_driven: bool) -> tuple[TrialStatus, str]:
    """Return the status and its reason; without a driver nothing runs, whatever the files say."""
    status = trial_status(trial)
    if status is TrialStatus.RUNNING and not is_driven:
        if torn := trial.torn_markers():
            said = f"its {' and '.join(torn)} cannot be read; the same command ends it again"
            return TrialStatus.FAILED, said
        return TrialStatus.INTERRUPTED, "its driver is gone; the same command goes on"
    result, failure = trial.read_done(), trial.read_failed()
    if result is not None:
        return status, result.reason
    return status, failure.reason if failure is not None else ""


def _warnings(trial: TrialDir) -> tuple[str, ...]:
    """Return the warnings of a trial's card; none where there is no card that can be read."""
    try:
        found = read_json(trial.card)
    except InputError:
        return ()
    warnings = found.get("warnings", ()) if isinstance(found, dict) else ()
    return tuple(map(str, warnings))


def _step_seconds(rows: Sequence[Row]) -> float | None:
    """Return the median seconds of the last training steps, by the clock of the metrics."""
    times = [float(row["time"]) for row in rows[-_RECENT - 1 :] if "time" in row]
    gaps = [b - a for a, b in pairwise(times) if b > a]
    return median(gaps) if gaps else None


def _newest(rows: Iterable[Mapping[str, Any]], key: str) -> float | None:
    found = [row[key] for row in rows if key in row]
    return float(found[-1]) if found else None


def read_state(folder: SweepFolder, *, now: float | None = None) -> SweepState:
    """Return the state of a run folder once."""
    return StatusReader(folder).read(now=now)
