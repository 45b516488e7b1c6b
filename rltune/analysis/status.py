"""The state of every trial of a run folder, from its files alone: no Ray, no running process."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rltune.analysis.trial_states import (
    DerivedState,
    Gate,
    SweepState,
    TrialState,
)
from rltune.analysis.usage import cost_of, newest, total
from rltune.comparability.judged import judged_in
from rltune.errors import InputError
from rltune.forecast.eta import (
    Timing,
    most_at_once,
    pooled,
    seconds_left,
    sweep_seconds_left,
    timing_of,
)
from rltune.store.cleaning import size_of
from rltune.store.files import read_json
from rltune.store.jsonl import Row, read_jsonl, read_metrics
from rltune.store.lock import DriverInfo, read_driver
from rltune.store.origin import Origin, read_origin
from rltune.store.run_folder import SweepFolder
from rltune.store.rundir import TrialDir, trial_status
from rltune.store.service_usage import known_usage
from rltune.store.speed import speed_key
from rltune.types import RowStatus, TrialSpec, TrialStatus

Stamp = tuple[int, int]  # time and size of a metrics file


@dataclass(slots=True)
class StatusReader:
    """Reads the state of one run folder again and again; unchanged trials are read once.

    Args:
        folder: The run folder.

    """

    folder: SweepFolder
    _rows: dict[str, tuple[Stamp, tuple[Row, ...]]] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def read(self, *, now: float | None = None) -> SweepState:
        """Return the state at `now` (seconds since the epoch; None is the clock's)."""
        now = time.time() if now is None else now
        run = self.folder.run
        driver = read_driver(run.lock)
        timings = self._timings()
        trials = tuple(
            self._trial(spec, timings[spec.trial_id], is_driven=driver is not None, now=now)
            for spec in self.folder.specs
        )
        return SweepState(
            path=str(run.path),
            name=self.folder.name,
            title=self.folder.title,
            metric_name=self.folder.metric_name,
            driver=driver,
            elapsed_s=_elapsed(driver, now),
            eta_s=self._eta(trials, timings) if driver is not None else None,
            cost=total(trial.cost for trial in trials),
            scale=_scale(trials),
            size_bytes=size_of(run.path),
            trials=trials,
            derived=tuple(self._derived(now)),
        )

    def _trial(self, spec: TrialSpec, timing: Timing, *, is_driven: bool, now: float) -> TrialState:
        trial = self.folder.run.trial(spec.trial_id)
        return _state(
            spec, trial, self._metrics(trial), timing,
            metric=self.folder.metric_name, is_driven=is_driven, now=now,
        )  # fmt: skip

    def _metrics(self, trial: TrialDir) -> tuple[Row, ...]:
        stamp, name = _stamp(trial), str(trial.path)
        cached = self._rows.get(name)
        if cached is None or cached[0] != stamp:
            rows = read_metrics(trial.metrics).rows
            cached = stamp, tuple(row for row in rows if isinstance(row.get("step"), int))
            self._rows[name] = cached
        return cached[1]

    def _timings(self) -> dict[str, Timing]:
        """Return the timing of each trial; what it has not measured is that of trials like it."""
        measured: dict[str, Timing] = {}
        alike: dict[str, list[Timing]] = {}
        for spec in self.folder.specs:
            trial, name = self.folder.run.trial(spec.trial_id), spec.trial_id
            rows = self._metrics(trial)
            measured[name] = timing_of(rows, started=_first_start(trial)) if rows else Timing()
            if name not in self._keys:
                self._keys[name] = speed_key(spec.config)
            alike.setdefault(self._keys[name], []).append(measured[name])
        everyone = pooled(measured.values())
        like = {name: pooled(alike[self._keys[name]]) for name in measured}
        return {name: _filled(one, like[name], everyone) for name, one in measured.items()}

    def _eta(self, trials: Sequence[TrialState], timings: Mapping[str, Timing]) -> float | None:
        """Return how long the trials take that have not ended, as many at once as so far."""
        every = {spec.trial_id: int(spec.config["gate"]["every"]) for spec in self.folder.specs}
        left = [
            seconds_left(
                trial.step,
                timings[trial.trial_id],
                steps=trial.steps,
                every=every[trial.trial_id],
                has_begun=trial.status is TrialStatus.RUNNING,
            )
            for trial in trials
            if not trial.status.has_ended
        ]
        running = sum(trial.status is TrialStatus.RUNNING for trial in trials)
        at_once = max(running, most_at_once(read_jsonl(self.folder.run.ledger).rows))
        return sweep_seconds_left(left, at_once=at_once)

    def _derived(self, now: float) -> Iterator[DerivedState]:
        """Yield the children and repetitions that have begun."""
        run = self.folder.run
        for trial in (*run.child_dirs(), *run.rerun_dirs()):
            try:
                spec, origin = trial.read_spec(), read_origin(trial)
            except InputError:
                continue  # it has not begun, or its files are broken; its own command says so
            if origin is None:
                continue
            rows = self._metrics(trial)
            state = _state(
                spec, trial, rows, timing_of(rows, started=_first_start(trial)),
                metric=self.folder.metric_name, now=now,
                is_driven=read_driver(trial.lock) is not None,
            )  # fmt: skip
            failure = trial.read_failed()
            if failure is not None and failure.kind is RowStatus.HARNESS_ABORT:
                state = replace(state, status=TrialStatus.STOPPED_EARLY)  # only a prefix was asked
            yield DerivedState(origin.kind, origin.parent, _note(trial, origin), state)


def _state(
    spec: TrialSpec,
    trial: TrialDir,
    rows: tuple[Row, ...],
    timing: Timing,
    *,
    metric: str,
    is_driven: bool,
    now: float,
) -> TrialState:
    status, reason = _status(trial, is_driven=is_driven)
    failure, result = trial.read_failed(), trial.read_done()
    measured = [row for row in rows if metric in row]
    gates = tuple(Gate(row["step"], float(row[metric])) for row in measured)
    step = max((row["step"] for row in rows), default=failure.step if failure else None)
    steps = int(spec.config["budget"]["steps"])
    every = int(spec.config["gate"]["every"])
    runs = status is TrialStatus.RUNNING
    left = seconds_left(step, timing, steps=steps, every=every, has_begun=True) if runs else None
    return TrialState(
        trial_id=spec.trial_id,
        condition=spec.condition,
        seed=spec.seed,
        is_control=spec.is_control,
        status=status,
        step=step,
        steps=steps,
        gates=gates,
        base=gates[0].value if gates and gates[0].step == 0 else None,
        last=gates[-1].value if gates else None,
        scored=_scored(measured[-1], int(spec.config["gate"]["tasks"])) if measured else "",
        last_gate=gates[-1].step if gates else None,
        best_step=result.best_step if result else None,
        tokens_per_s=newest(rows, "perf/tokens_per_s"),
        step_s=timing.step_s if rows else None,
        gate_s=timing.gate_s if rows else None,
        eta_s=left,
        silent_s=max(0.0, now - float(rows[-1].get("time", now))) if runs and rows else None,
        cost=cost_of(
            spec.config,
            rows,
            wall_s=result.total_s if result else None,
            service=known_usage(trial.service),
        ),
        reason=reason,
        log=str(trial.log),
        judged=judged_in(rows),
        warnings=_warnings(trial) if result else (),
    )


def _scored(row: Row, asked: int) -> str:
    """Return the tasks that a gate scored, from its metrics; empty where it scored all."""
    lost = int(row.get("heldout/fault_count", 0))
    return f"{asked - lost}/{asked}" if lost else ""


def _filled(timing: Timing, *others: Timing) -> Timing:
    """Return a timing with what it lacks taken from the first other that has it."""
    for other in others:
        lacking = {
            name: getattr(other, name) for name in Timing.__slots__ if getattr(timing, name) is None
        }
        timing = replace(timing, **lacking)
    return timing


def _scale(trials: Sequence[TrialState]) -> tuple[float, float] | None:
    values = [g.value for trial in trials for g in trial.gates if math.isfinite(g.value)]
    return (min(values), max(values)) if values else None


def _elapsed(driver: DriverInfo | None, now: float) -> float | None:
    started = _seconds(driver.started) if driver is not None else None
    return max(0.0, now - started) if started is not None else None


def _seconds(moment: object) -> float | None:
    """Return a recorded moment (`2026-11-28T16:46:55Z`) in seconds since the epoch."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None


def _first_start(trial: TrialDir) -> float | None:
    """Return when the first attempt of a trial began; None when it is not known."""
    content = _read_object(trial.provenance)
    first = next(iter(content.get("earlier") or ()), content)
    return _seconds(first.get("started")) if isinstance(first, Mapping) else None


def _note(trial: TrialDir, origin: Origin) -> str:
    """Return what a child changes and starts from, or what a repetition showed."""
    if origin.kind == "rerun":
        return str(_read_object(trial.verdict).get("verdict", ""))
    parts = [f"{key} {old} -> {new}" for key, (old, new) in origin.changes.items()]
    if origin.step is not None:
        which = f" ({origin.which})" if not origin.which.isdigit() else ""
        parts.insert(0, f"from step {origin.step}{which}")
    return ", ".join(parts)


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
            reason = f"its {' and '.join(torn)} cannot be read; run the same command to finish it"
            return TrialStatus.FAILED, reason
        return TrialStatus.INTERRUPTED, "its driver is gone; run the same command to resume"
    result, failure = trial.read_done(), trial.read_failed()
    if result is not None:
        return status, result.reason
    return status, failure.reason if failure is not None else ""


def _warnings(trial: TrialDir) -> tuple[str, ...]:
    """Return the warnings of a trial's model card; empty where it cannot be read."""
    return tuple(map(str, _read_object(trial.model_card).get("warnings", ())))


def _read_object(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; empty where it cannot be read."""
    try:
        content = read_json(path)
    except InputError:
        return {}
    return content if isinstance(content, dict) else {}


def read_state(folder: SweepFolder, *, now: float | None = None) -> SweepState:
    """Return the state of a run folder once."""
    return StatusReader(folder).read(now=now)
