"""A sweep from its loaded file to its outcome: prove, plan, launch what is missing, record it.

Ray is imported only when something is left to run.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rltune.analysis.seed_blocks import Due, due_trials, require_same_looks, take_looks
from rltune.comparability.findings import ComparabilityReport
from rltune.errors import ResourceError
from rltune.runner.budget import Deadline, Declined, read_declined, startable
from rltune.runner.environment import (
    remove_ray_folders,
    require_concurrency,
    require_startable,
)
from rltune.runner.folder import (
    FrozenTasks,
    as_begun,
    edited_predictions,
    freeze_all,
    next_launch,
    sweep_recorder,
    write_folder,
)
from rltune.runner.inputs import require_same_inputs
from rltune.runner.launch_session import LaunchSession, OnTick
from rltune.runner.proof import require_comparable, require_proven
from rltune.runner.provenance import DriverProvenance, driver_provenance
from rltune.runner.recorder import Recorder
from rltune.runner.spend import SpendLimit, overspent
from rltune.runner.trial import TrialPayload
from rltune.scratch import remove_abandoned
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
    specs: tuple[TrialSpec, ...]  # every trial that is planned by now
    # trial id -> where it is now; a failed one of a decided condition is not asked for any more
    statuses: Mapping[str, TrialStatus]
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
        say: Called with a line for each trial whose machine went, and for each prediction that was
            edited too late.
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
    require_concurrency(request.max_concurrent)
    base = Path.cwd()
    report = request.proof or require_proven(
        request.loaded, base, allow_confounded=request.allow_confounded
    )
    require_comparable(request.loaded, report, request.allow_confounded)
    require_judge(request.loaded)
    require_engine(request.loaded)
    run = RunDir((request.runs_dir / request.loaded.run_name).resolve())
    require_same_looks(run, request.loaded)
    if not all(_status(run, spec).is_finished for spec in due_trials(run, request.loaded).specs):
        require_startable(request.ray_address)
    run.create()
    with take_driver_lock(run.lock, argv=request.argv):
        require_same_inputs(run, base)
        allowed = None if report.ok else request.allow_confounded
        tasks = freeze_all(run, expand(request.loaded), base=base)
        driver = driver_provenance(request.argv)
        command = _Command(
            request, run, base, report, allowed, tasks, driver, on_start, on_tick, say, tick_s
        )
        ran = _Ran(declined=[])
        due = _run_block(command, ran)
        while not ran.was_stopped and take_looks(run, request.loaded, launch=ran.launch, say=say):
            due = _run_block(command, ran)
        statuses = {spec.trial_id: _status(run, spec) for spec in due.specs}
    asked = {name: one for name, one in statuses.items() if one.is_finished or name in due.wanted}
    is_interrupted = ran.was_stopped and not all(one.is_finished for one in asked.values())
    return SweepOutcome(
        run, due.specs, asked, frozenset(ran.begun), is_interrupted, tuple(ran.declined)
    )


@dataclass(frozen=True, slots=True)
class _Command:
    """What all blocks of a command have in common."""

    request: SweepRequest
    run: RunDir
    base: Path  # folder of relative paths in configs
    report: ComparabilityReport  # the proof
    allowed: str | None  # reason for running although the proof failed
    tasks: Mapping[str, FrozenTasks]  # trial id -> its frozen tasks
    driver: DriverProvenance
    on_start: OnStart
    on_tick: OnTick
    say: Say
    tick_s: float


def _run_block(command: _Command, ran: "_Ran") -> Due:
    """Plan what is due, run what is missing of it, and return it.

    A list of seeds is one block. A trial that this command has begun is not begun again.
    """
    request, run, base = command.request, command.run, command.base
    due = due_trials(run, request.loaded)
    specs = as_begun(run, due.specs)
    if not ran.launch:  # the first block: no other says it again
        for line in edited_predictions(due.specs, specs):
            command.say(line)
    todo = [spec for spec in specs if spec.trial_id in due.wanted - ran.begun]
    todo = [spec for spec in todo if not _status(run, spec).is_finished]
    if todo:  # of a later block, too: all trials before it may have been finished
        require_startable(request.ray_address)
    write_folder(run, request.loaded, command.report, specs, command.tasks, allowed=command.allowed)
    recorder = sweep_recorder(
        run,
        request.loaded.spec,
        specs,
        commit=command.driver.code.label,
        confounded=command.allowed or "",
        shared=request.lineage.absolute() if request.lineage else None,
    )
    recorder.reconcile_all(specs)
    ran.launch = recorder.launch
    remove_ray_folders(run.tune)
    remove_abandoned()
    recorder.ledger.plan([spec.trial_id for spec in specs], launch=recorder.launch)
    if todo or not ran.begun:
        command.on_start(run, specs)
    if todo:
        make_references((one.config for one in request.loaded.conditions), base)
    if todo and request.ray_address is None:  # a cluster's machines may hold other models
        require_models(request.loaded, base)
    if overspent(run, request.spend):
        todo = []
    todo, ran.declined = startable(run, todo, request.deadline, ran.left(request.max_trials))
    if todo:
        _run_all(command, recorder, todo, ran)
    return due


def _status(run: RunDir, spec: TrialSpec) -> TrialStatus:
    return trial_status(run.trial(spec.trial_id))


@dataclass(slots=True)
class _Ran:
    """Progress over the launches of a command."""

    # trials that were not started, as they could not finish by the deadline
    declined: list[Declined]
    begun: set[str] = field(default_factory=set)  # trials that were started
    was_stopped: bool = False  # whether a stop was asked for
    launch: str = ""  # name of the last one
    losses: Counter[str] = field(default_factory=Counter)  # trial id -> how often its machine went

    def left(self, most: int | None) -> int | None:
        """Return how many trials the command may still start; None: any number."""
        return None if most is None else max(0, most - len(self.begun))


def _run_all(
    command: _Command,
    recorder: Recorder,
    specs: Sequence[TrialSpec],
    ran: _Ran,
) -> None:
    """Launch the trials, and launch again those whose machines were lost, until none is left."""
    request, say, todo = command.request, command.say, list(specs)
    while todo:
        payloads = _payloads(command, recorder, todo)
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
            ran.was_stopped = session.run(command.on_tick, tick_s=command.tick_s)
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
    command: _Command, recorder: Recorder, todo: Sequence[TrialSpec]
) -> list[TrialPayload]:
    request = command.request
    state = recorder.ledger.read()
    return [
        TrialPayload(
            spec=spec,
            folder=recorder.run.trial(spec.trial_id).path,
            manifest=command.tasks[spec.trial_id].path,
            metric=request.loaded.spec.metric,
            attempt=state.attempts(spec.trial_id) + 1,
            driver=command.driver,
            stop_file=recorder.run.tune / recorder.launch / STOP_FILE,
            base=command.base,
            deadline=request.deadline,
            spend=request.spend,
        )
        for spec in todo
    ]
