"""A sweep from its loaded file to its outcome: prove, plan, launch what is missing, keep the books.

Ray is imported only when something is left to run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rltune.errors import ConfoundedError, Problem, ResourceError
from rltune.runner.books import Books, open_books
from rltune.runner.budget import Deadline, Declined, decline, first_trials, read_declined
from rltune.runner.environment import apply_ray_environment, remove_ray_folders
from rltune.runner.folder import FrozenTasks, freeze_all, next_launch, write_folder
from rltune.runner.interrupts import stop_on_signal
from rltune.runner.provenance import DriverProvenance, driver_provenance
from rltune.runner.trial import TrialPayload, read_provenance
from rltune.spec.comparability import check_sweep
from rltune.spec.expand import expand
from rltune.spec.findings import ComparabilityReport
from rltune.spec.load import LoadedSweep
from rltune.store.lineage_record import domain_of
from rltune.store.lock import take_driver_lock
from rltune.store.rundir import RunDir, trial_status
from rltune.trainer.engine_check import require_engine
from rltune.trainer.preflight import require_judge, require_models, require_usable
from rltune.types import TrialSpec, TrialStatus

if TYPE_CHECKING:
    from rltune.runner.tune import TuneLaunch

# Not run again. A diverged trial is a result: on the same code it diverges again.
FINAL = frozenset({TrialStatus.DONE, TrialStatus.STOPPED_EARLY, TrialStatus.DIVERGED})
STOP_FILE = "STOP"

OnStart = Callable[[RunDir, Sequence[TrialSpec]], None]
OnTick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What to run, and how.

    Attributes:
        loaded: The sweep.
        runs_dir: Where run folders are made.
        max_concurrent: Most trials at a time; None: as many as the resources hold.
        ray_address: A running cluster; None starts a private one on this machine.
        allow_confounded: Reason for running although the proof failed; None refuses that.
        argv: The command line, for the records.
        max_trials: Most trials to start; None: all that are missing.
        deadline: When this launch should be over; None: whenever it is.
        lineage: A table that this sweep shares with others; it gets a copy of every row.

    """

    loaded: LoadedSweep
    runs_dir: Path
    max_concurrent: int | None
    ray_address: str | None
    allow_confounded: str | None
    argv: tuple[str, ...]
    max_trials: int | None = None
    deadline: Deadline | None = None
    lineage: Path | None = None


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a launch left.

    Attributes:
        run: The sweep's folder.
        specs: Every trial that was asked for.
        statuses: Trial id -> where it is now.
        launched: Trials that this launch started.
        is_interrupted: Whether it was stopped before its end; the same command goes on.
        declined: Trials that were not started, as they could not finish by the deadline.

    """

    run: RunDir
    specs: tuple[TrialSpec, ...]
    statuses: Mapping[str, TrialStatus]
    launched: int
    is_interrupted: bool
    declined: tuple[Declined, ...] = ()


def run_sweep(
    request: SweepRequest, *, on_start: OnStart, on_tick: OnTick, tick_s: float = 1.0
) -> SweepOutcome:
    """Run what is missing of a sweep. Finished trials are returned, never run again.

    Args:
        request: What to run.
        on_start: Called once the folder is written, before Ray starts.
        on_tick: Called about every `tick_s` while trials run, and once after the last.
        tick_s: Seconds between two looks at the trials.

    Raises:
        ConfoundedError: More than the axis differs, and `allow_confounded` is None.
        SpecError: A file or an import path in a config cannot be used.
        InputError: A model is neither here nor given by the hub.
        StoreError: Another driver lives, or the folder's tasks were edited.
        ResourceError: A trial fits on no machine, or the cluster cannot be reached.
        KeyboardInterrupt: A second signal came before the running trials had stopped.

    """
    _require_concurrency(request.max_concurrent)
    report = check_sweep(request.loaded)
    require_comparable(report, request)
    base = Path.cwd()
    require_usable(request.loaded, base)
    require_judge(request.loaded)
    require_engine(request.loaded)
    specs = expand(request.loaded)
    run = RunDir((request.runs_dir / request.loaded.run_name).resolve()).create()
    with take_driver_lock(run.lock, argv=request.argv):
        tasks = freeze_all(run, specs, base=base)
        allowed = None if report.ok else request.allow_confounded
        write_folder(run, request.loaded, report, specs, tasks, allowed=allowed)
        driver = driver_provenance(request.argv)
        books = _open(run, request, driver, allowed, specs)
        books.reconcile(specs)
        remove_ray_folders(run.tune)
        books.ledger.plan([spec.trial_id for spec in specs], launch=books.launch)
        on_start(run, specs)
        todo = [spec for spec in specs if _status(run, spec) not in FINAL]
        if todo and request.ray_address is None:  # a cluster's machines may hold other models
            require_models(request.loaded, base)
        todo, declined = _startable(run, todo, request)
        payloads = _payloads(request, books, driver, tasks, todo, base)
        was_stopped = False
        if payloads:
            books.expect((payload.spec, payload.attempt) for payload in payloads)
            try:
                was_stopped = _Drive(request, books, payloads).run(on_tick, tick_s=tick_s)
            finally:
                remove_ray_folders(run.tune)
            declined += read_declined(payloads[0].stop_file.parent)
        statuses = {spec.trial_id: _status(run, spec) for spec in specs}
    launched = sum(_has_begun(run, payload) for payload in payloads)
    is_interrupted = was_stopped and not FINAL.issuperset(statuses.values())
    return SweepOutcome(run, specs, statuses, launched, is_interrupted, tuple(declined))


def require_comparable(report: ComparabilityReport, request: SweepRequest) -> None:
    """Refuse a confounded sweep unless a reason to run it anyway is given."""
    if report.ok or (request.allow_confounded or "").strip():
        return
    path = request.loaded.path
    raise ConfoundedError(
        [
            Problem(f"{path}: {finding.code or finding.rule}", finding.message, "", finding.remedy)
            for finding in report.errors
        ]
    )


def _require_concurrency(max_concurrent: int | None) -> None:
    if max_concurrent is not None and max_concurrent < 1:
        what = f"{max_concurrent} trials at a time would run none."
        raise ResourceError(Problem("--max-concurrent", what, "Give 1 or more."))


def _open(
    run: RunDir,
    request: SweepRequest,
    driver: DriverProvenance,
    allowed: str | None,
    specs: Sequence[TrialSpec],
) -> Books:
    metric = request.loaded.spec.metric
    return open_books(
        run,
        launch=next_launch(run),
        metric=(metric.name, metric.mode),
        commit=driver.code.label,
        disqualified=f"confounded, run anyway: {allowed}" if allowed else "",
        shared=request.lineage.absolute() if request.lineage else None,
        domains=[domain_of(spec) for spec in specs],
    )


def _status(run: RunDir, spec: TrialSpec) -> TrialStatus:
    return trial_status(run.trial(spec.trial_id))


def _startable(
    run: RunDir, todo: Sequence[TrialSpec], request: SweepRequest
) -> tuple[list[TrialSpec], list[Declined]]:
    """Return the trials that may start, and those that cannot finish by the deadline.

    Each is asked again when its turn comes: by then more is measured, and less time is left.
    """
    found = {spec.trial_id: decline(run, spec, request.deadline) for spec in todo}
    may = [spec for spec in todo if found[spec.trial_id] is None]
    declined = [late for late in found.values() if late is not None]
    return first_trials(run, may, request.max_trials), declined


def _payloads(
    request: SweepRequest,
    books: Books,
    driver: DriverProvenance,
    tasks: Mapping[str, FrozenTasks],
    todo: Sequence[TrialSpec],
    base: Path,
) -> list[TrialPayload]:
    state = books.ledger.read()
    metric = request.loaded.spec.metric
    return [
        TrialPayload(
            spec=spec,
            folder=books.run.trial(spec.trial_id).path,
            manifest=tasks[spec.trial_id].path,
            metric_name=metric.name,
            metric_mode=metric.mode,
            attempt=state.attempts(spec.trial_id) + 1,
            driver=driver,
            stop_file=books.run.tune / books.launch / STOP_FILE,
            base=base,
            deadline=request.deadline,
        )
        for spec in todo
    ]


def _has_begun(run: RunDir, payload: TrialPayload) -> bool:
    """Whether this attempt left a trace."""
    trial = run.trial(payload.spec.trial_id)
    failure = trial.read_failed()
    seen = read_provenance(trial).get("attempt")
    return seen == payload.attempt or (failure is not None and failure.attempt == payload.attempt)


class _Drive:
    """One launch under way: Tune in its thread, the books and the signals here."""

    def __init__(
        self, request: SweepRequest, books: Books, payloads: Sequence[TrialPayload]
    ) -> None:
        self._request = request
        self._books = books
        self._payloads = {payload.spec.trial_id: payload for payload in payloads}
        self._stop_file = payloads[0].stop_file
        self._launch: TuneLaunch | None = None

    def run(self, on_tick: OnTick, *, tick_s: float) -> bool:
        """Drive the launch to its end; return whether a stop was asked for."""
        self._stop_file.parent.mkdir(parents=True)
        with stop_on_signal(self._stop):
            apply_ray_environment(is_local=self._request.ray_address is None)
            from rltune.runner.tune import TuneLaunch

            self._launch = TuneLaunch(
                self._books.launch,
                self._books.run.tune,
                list(self._payloads.values()),
                max_concurrent=self._request.max_concurrent,
                address=self._request.ray_address,
            )
            if self._is_stopping:
                return True
            self._launch.start()
            try:
                while self._launch.is_running(wait_s=tick_s):
                    self._settle()
                    on_tick()
            except BaseException:
                self._launch.abort()
                raise
            self._settle()
            self._bury_silent()
            on_tick()
        self._launch.raise_error()
        return self._is_stopping

    @property
    def _is_stopping(self) -> bool:
        return self._stop_file.exists()

    def _stop(self) -> None:
        """Ask for a clean stop. The file comes first: what starts after `stop` must find it."""
        self._stop_file.touch()
        if self._launch is not None:
            self._launch.stop()

    def _settle(self) -> None:
        assert self._launch is not None
        for death in self._launch.deaths():
            self._bury(death.trial_id, death.reason, is_machine_gone=death.is_machine_gone)
        self._books.settle([payload.spec for payload in self._payloads.values()])

    def _bury(self, trial_id: str, reason: str, *, is_machine_gone: bool = False) -> None:
        payload = self._payloads[trial_id]
        self._books.bury(
            payload.spec,
            attempt=payload.attempt,
            reason=reason,
            is_preempted=self._is_stopping or is_machine_gone,
        )

    def _bury_silent(self) -> None:
        """End the attempts of which neither they nor Ray told the end, and close the books."""
        for trial_id, payload in self._payloads.items():
            trial = self._books.run.trial(trial_id)
            if read_provenance(trial).get("attempt") == payload.attempt:
                self._bury(trial_id, "its process ended with the launch, without a marker")
        self._books.close([payload.spec for payload in self._payloads.values()])
