"""A sweep from its loaded file to its outcome: prove, plan, launch what is missing, record it.

Ray is imported only when something is left to run.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rltune.comparability.findings import ComparabilityReport
from rltune.errors import Problem, ResourceError
from rltune.lineage.record import Proposal, domain_of
from rltune.runner.budget import Deadline, Declined, read_declined, startable
from rltune.runner.environment import remove_ray_folders, require_startable
from rltune.runner.folder import FrozenTasks, freeze_all, next_launch, write_folder
from rltune.runner.inputs import require_same_inputs
from rltune.runner.launch_session import LaunchSession, OnTick
from rltune.runner.proof import require_comparable, require_proven
from rltune.runner.provenance import DriverProvenance, driver_provenance
from rltune.runner.recorder import Recorder, open_recorder
from rltune.runner.spend import SpendLimit, overspent
from rltune.runner.trial import TrialPayload
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep
from rltune.store.lock import take_driver_lock
from rltune.store.rundir import RunDir, trial_status
from rltune.trainer.models.references import make_references
from rltune.trainer.preflight.models import require_engine, require_models
from rltune.trainer.preflight.references import require_judge
from rltune.types import TrialSpec, TrialStatus

STOP_FILE = "STOP"
MOST_LOSSES = 3
"""A trial that has lost its machine so often in one command waits for the next command."""
_GOES_ON = "the same command goes on with it"

OnStart = Callable[[RunDir, Sequence[TrialSpec]], None]
Say = Callable[[str], None]
MakePayloads = Callable[[Recorder, Sequence[TrialSpec]], list[TrialPayload]]


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """A request to run a sweep."""

    loaded: LoadedSweep  # the sweep
    runs_dir: Path  # where run folders are made
    max_concurrent: int | None  # most trials at a time; None: as many as the resources hold
    ray_address: str | None  # A running cluster; None starts a private one on this machine
    allow_confounded: str | None  # reason for running although the proof failed; None refuses that
    argv: tuple[str, ...]  # the command line, for the records
    max_trials: int | None = None  # most trials to start; None: all that are missing
    deadline: Deadline | None = None  # when this launch should be over; None: whenever it is
    spend: SpendLimit | None = None  # what may be asked of a training service; None: no limit
    # A table that this sweep shares with others; it gets a copy of every row
    lineage: Path | None = None
    # what `rltune.runner.proof.require_proven` returned; None proves the sweep here
    proof: ComparabilityReport | None = None


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """State of a sweep after a command."""

    run: RunDir  # the sweep's folder
    specs: tuple[TrialSpec, ...]  # every trial that was asked for
    statuses: Mapping[str, TrialStatus]  # trial id -> where it is now
    begun: frozenset[str]  # trials that this command started
    is_interrupted: bool  # whether it was stopped before its end; the same command goes on
    # trials that were not started, as they could not finish by the deadline
    declined: tuple[Declined, ...] = ()


def run_sweep(
    request: SweepRequest,
    *,
    on_start: OnStart,
    on_tick: OnTick,
    say: Say = lambda text: None,
    tick_s: float = 1.0,
) -> SweepOutcome:
    """Run what is missing of a sweep. Finished trials are returned, never run again.

    A trial whose machine of a cluster goes is launched again on what is left of the cluster, once
    the others have ended.

    Args:
        request: What to run.
        on_start: Called once the folder is written, before Ray starts.
        on_tick: Called about every `tick_s` while trials run, and once after the last.
        say: Called with a line for each trial whose machine went.
        tick_s: Seconds between two looks at the trials.

    Raises:
        ConfoundedError: More than the axis differs, and `allow_confounded` is None.
        SpecError: A file or an import path in a config cannot be used.
        InputError: A model is neither here nor given by the hub.
        StoreError: Another driver lives, the folder's tasks were edited, or a file that its trials
            read has changed.
        ResourceError: A trial fits on no machine, or the cluster cannot be reached.
        KeyboardInterrupt: A second signal came before the running trials had stopped.

    """
    _require_concurrency(request.max_concurrent)
    base = Path.cwd()
    report = request.proof or require_proven(
        request.loaded, base, allow_confounded=request.allow_confounded
    )
    require_comparable(request.loaded, report, request.allow_confounded)
    require_judge(request.loaded)
    require_engine(request.loaded)
    specs = expand(request.loaded)
    run = RunDir((request.runs_dir / request.loaded.run_name).resolve())
    if not all(_status(run, spec).is_finished for spec in specs):
        require_startable(request.ray_address)
    run.create()
    with take_driver_lock(run.lock, argv=request.argv):
        require_same_inputs(run, base)
        tasks = freeze_all(run, specs, base=base)
        allowed = None if report.ok else request.allow_confounded
        write_folder(run, request.loaded, report, specs, tasks, allowed=allowed)
        driver = driver_provenance(request.argv)
        recorder = _open(run, request, driver, allowed, specs)
        recorder.reconcile_all(specs)
        remove_ray_folders(run.tune)
        recorder.ledger.plan([spec.trial_id for spec in specs], launch=recorder.launch)
        on_start(run, specs)
        todo = [spec for spec in specs if not _status(run, spec).is_finished]
        if todo:
            make_references((one.config for one in request.loaded.conditions), base)
        if todo and request.ray_address is None:  # a cluster's machines may hold other models
            require_models(request.loaded, base)
        if overspent(run, request.spend):
            todo = []
        todo, declined = startable(run, todo, request.deadline, request.max_trials)
        make = partial(_payloads, request, driver, tasks, base)
        ran = _Ran(declined=declined)
        if todo:
            _run_all(request, recorder, make, todo, ran, on_tick=on_tick, say=say, tick_s=tick_s)
        statuses = {spec.trial_id: _status(run, spec) for spec in specs}
    is_finished = all(status.is_finished for status in statuses.values())
    is_interrupted = ran.was_stopped and not is_finished
    return SweepOutcome(
        run, specs, statuses, frozenset(ran.begun), is_interrupted, tuple(ran.declined)
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
) -> Recorder:
    sweep = request.loaded.spec
    metric = sweep.metric
    return open_recorder(
        run,
        launch=next_launch(run),
        metric=(metric.name, metric.mode),
        commit=driver.code.label,
        disqualified=f"confounded, run anyway: {allowed}" if allowed else "",
        shared=request.lineage.absolute() if request.lineage else None,
        domains=[domain_of(spec) for spec in specs],
        proposal=Proposal(sweep.hypothesis, sweep.specialist, sweep.parent),
    )


def _status(run: RunDir, spec: TrialSpec) -> TrialStatus:
    return trial_status(run.trial(spec.trial_id))


@dataclass(slots=True)
class _Ran:
    """Progress over the launches of a command."""

    # trials that were not started, as they could not finish by the deadline
    declined: list[Declined]
    begun: set[str] = field(default_factory=set)  # trials that were started
    was_stopped: bool = False  # whether a stop was asked for
    losses: Counter[str] = field(default_factory=Counter)  # trial id -> how often its machine went


def _run_all(
    request: SweepRequest,
    recorder: Recorder,
    make: MakePayloads,
    specs: Sequence[TrialSpec],
    ran: _Ran,
    *,
    on_tick: OnTick,
    say: Say,
    tick_s: float,
) -> None:
    """Launch the trials, and launch again those whose machines were lost, until none is left."""
    todo = list(specs)
    while todo:
        payloads = make(recorder, todo)
        recorder.expect((payload.spec, payload.attempt) for payload in payloads)
        session = LaunchSession(
            recorder,
            payloads,
            specs,
            max_concurrent=request.max_concurrent,
            address=request.ray_address,
            say=say,
        )
        try:
            ran.was_stopped = session.run(on_tick, tick_s=tick_s)
        except ResourceError as error:
            ran.was_stopped = payloads[0].stop_file.exists()
            if not ran.losses:  # the first launch: what was asked for is refused
                raise
            reason = " ".join(str(error).split())
            _say_each(todo, f"stays preempted; {_GOES_ON}. {reason}", say)
            break
        finally:
            remove_ray_folders(recorder.run.tune)
        _say_each(session.unschedulable, f"not started, no machine is left for it; {_GOES_ON}", say)
        ran.begun |= session.begun
        ran.declined += read_declined(payloads[0].stop_file.parent)
        if ran.was_stopped:
            break
        todo = _take_up(request, recorder.run, session.preempted, ran, say)
        if todo:
            recorder = replace(recorder, launch=next_launch(recorder.run))
    recorder.close(specs)


def _take_up(
    request: SweepRequest, run: RunDir, preempted: Sequence[TrialSpec], ran: _Ran, say: Say
) -> list[TrialSpec]:
    """Return the trials to launch again after their machines were lost; report on each.

    Other machines may be smaller: whether there is room is seen when Ray is asked.
    """
    ran.losses.update(spec.trial_id for spec in preempted)
    spent = [spec for spec in preempted if ran.losses[spec.trial_id] >= MOST_LOSSES]
    _say_each(spent, f"lost its machine {MOST_LOSSES} times and stays preempted; {_GOES_ON}", say)
    todo = [spec for spec in preempted if spec not in spent]
    todo, late = startable(run, todo, request.deadline, request.max_trials)
    ran.declined += late
    for spec in todo:
        has_checkpoint = run.trial(spec.trial_id).latest.exists()
        start = "its last checkpoint" if has_checkpoint else "its beginning"
        where = f"launched again on what is left of the cluster, from {start}"
        _say_each([spec], f"its machine is gone; {where}", say)
    return todo


def _say_each(specs: Sequence[TrialSpec], what: str, say: Say) -> None:
    for spec in specs:
        say(f"{spec.condition}, seed {spec.seed}: {what}")


def _payloads(
    request: SweepRequest,
    driver: DriverProvenance,
    tasks: Mapping[str, FrozenTasks],
    base: Path,
    recorder: Recorder,
    todo: Sequence[TrialSpec],
) -> list[TrialPayload]:
    state = recorder.ledger.read()
    return [
        TrialPayload(
            spec=spec,
            folder=recorder.run.trial(spec.trial_id).path,
            manifest=tasks[spec.trial_id].path,
            metric=request.loaded.spec.metric,
            attempt=state.attempts(spec.trial_id) + 1,
            driver=driver,
            stop_file=recorder.run.tune / recorder.launch / STOP_FILE,
            base=base,
            deadline=request.deadline,
            spend=request.spend,
        )
        for spec in todo
    ]
