"""What a command does about trials whose machines go, around launches that only write files."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from test_runner_recorder import begin, events, result_of
from test_runner_sweep import nothing, prepare, request_of

from rltune.errors import Problem, ResourceError
from rltune.lineage.table import LineageStore
from rltune.runner import tune
from rltune.runner.budget import Deadline
from rltune.runner.sweep import SweepOutcome, run_sweep
from rltune.runner.trial import TrialPayload
from rltune.runner.waiting import Waiting
from rltune.runner.watch import WorkerFailure
from rltune.store.rundir import RunDir, TrialDir
from rltune.types import TrialStatus

GONE = "its machine is gone (worker 1a2b3c4d)"
TOO_LARGE = ResourceError(Problem("resources.cpus", "a trial asks for 2 CPUs"))
Act = Callable[[TrialPayload], WorkerFailure | None]


def finish(payload: TrialPayload) -> None:
    run = RunDir(payload.folder.parents[1])
    begin(run, payload.spec, attempt=payload.attempt)
    TrialDir(payload.folder).clear_failed()
    TrialDir(payload.folder).write_done(result_of(payload.spec))


def die(payload: TrialPayload, reason: str = "its process died", *, gone: bool = False):
    begin(RunDir(payload.folder.parents[1]), payload.spec, attempt=payload.attempt)
    TrialDir(payload.folder).clear_failed()
    return WorkerFailure(payload.spec.trial_id, reason, gone)


def lose(payload: TrialPayload):
    return die(payload, GONE, gone=True)


def save_and_lose(payload: TrialPayload):
    (payload.folder / "checkpoints" / "latest").mkdir(parents=True, exist_ok=True)
    return lose(payload)


def finish_then_lose(payload: TrialPayload):
    finish(payload)
    return WorkerFailure(payload.spec.trial_id, GONE, True)


def wait(payload: TrialPayload) -> None:
    """Wait for a machine that is no more."""


def stop_then_lose(payload: TrialPayload):
    signal.raise_signal(signal.SIGTERM)
    return lose(payload)


@dataclass
class Script:
    """What the launches of a command do: one entry a launch, one act a trial, or what it raises."""

    launches: list[Sequence[Act] | ResourceError]
    seen: list[list[tuple[str, int]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def launch(self, name, folder, payloads, **options):
        self.seen.append([(payload.spec.condition, payload.attempt) for payload in payloads])
        return FakeLaunch(self.launches[len(self.seen) - 1], payloads)


class FakeLaunch:
    """Stands in for TuneLaunch."""

    def __init__(self, script: Sequence[Act] | ResourceError, payloads: Sequence[TrialPayload]):
        self._script = script
        self._payloads = payloads
        self._failures: list[WorkerFailure] = []

    def start(self) -> None:
        if not isinstance(self._script, ResourceError):
            acts = zip(self._script, self._payloads, strict=True)
            self._failures = [failure for act, payload in acts if (failure := act(payload))]

    def is_running(self, *, wait_s: float) -> bool:
        return False

    def stop(self) -> None:
        pass

    def failures(self):
        found, self._failures = self._failures, []
        return found

    @property
    def unschedulable(self) -> frozenset[str]:
        ids = [payload.spec.trial_id for payload in self._payloads]
        waits = isinstance(self._script, tuple) and wait in self._script
        return frozenset({ids[self._script.index(wait)]} if waits else ())

    def raise_error(self) -> None:
        if isinstance(self._script, ResourceError):
            raise self._script


@pytest.fixture
def play(small, tmp_path, monkeypatch):
    """Run the small sweep (four trials; the control first) with launches that follow a script."""
    run = prepare(request_of(small, tmp_path))

    def call(*launches, address="head:6379", **changes) -> tuple[SweepOutcome, Script]:
        script = Script(list(launches))
        monkeypatch.setattr(tune, "TuneLaunch", script.launch)
        monkeypatch.setattr("rltune.runner.launch_session.apply_ray_environment", nothing)
        request = request_of(small, tmp_path, ray_address=address, **changes)
        outcome = run_sweep(request, on_start=nothing, on_tick=nothing, say=script.said.append)
        assert outcome.run == run
        return outcome, script

    return call


FIRST = "kl_loss_coef=0.01"


def test_a_trial_that_lost_its_machine_is_launched_again_alone(play):
    outcome, script = play((finish, save_and_lose, finish, die), (finish,))
    assert script.seen[1:] == [[(FIRST, 2)]]
    name = outcome.specs[1].trial_id
    assert events(outcome.run, name)[1:] == [
        *(("started", 1), ("interrupted", 1)),
        *(("started", 2), ("done", 2)),
    ]
    assert script.said == [
        f"{FIRST}, seed 0: its machine is gone; "
        "launched again on what is left of the cluster, from its last checkpoint"
    ]
    statuses = list(outcome.statuses.values())
    done = TrialStatus.DONE
    assert statuses == [done, done, done, TrialStatus.FAILED]  # a crash is not tried again
    assert (len(outcome.begun), outcome.is_interrupted) == (4, False)


def test_the_rows_of_a_seed_wait_for_the_second_attempt_of_its_control(play):
    outcome, _ = play((lose, finish, finish, finish), (finish,))
    rows = LineageStore.open(outcome.run.results).read().rows
    lost, control, *others = rows
    assert (lost.status, lost.job_name) == ("preempted", "launch-0001")
    assert (control.status, control.job_name) == ("baseline", "launch-0002")
    assert {(row.parent_exp, row.job_name) for row in others} == {(control.exp_id, "launch-0001")}
    assert len(others) == 3


@pytest.mark.parametrize("then", [(TOO_LARGE,), ((lose,), (lose,))])
def test_a_control_that_is_not_taken_up_holds_nobody_back(play, then):
    outcome, _ = play((lose, finish, finish, finish), *then)
    rows = LineageStore.open(outcome.run.results).read().rows
    others = {spec.trial_id for spec in outcome.specs[1:]}
    assert others <= {row.exp_id for row in rows}


def test_three_losses_are_enough_for_one_command(play):
    outcome, script = play((finish, lose, finish, finish), (lose,), (lose,))
    assert script.seen[1:] == [[(FIRST, 2)], [(FIRST, 3)]]
    assert script.said[-1] == (
        f"{FIRST}, seed 0: lost its machine 3 times and stays preempted; "
        "the same command goes on with it"
    )
    assert outcome.statuses[outcome.specs[1].trial_id] is TrialStatus.INTERRUPTED
    assert not outcome.is_interrupted  # nobody asked for a stop
    assert len(outcome.begun) == 4


def test_what_does_not_fit_on_what_is_left_stays_preempted(play):
    outcome, script = play((finish, lose, lose, finish), TOO_LARGE)
    assert len(script.seen) == 2
    first, second = script.said[-2:]
    assert first == (
        f"{FIRST}, seed 0: stays preempted; the same command goes on with it. "
        "resources.cpus: a trial asks for 2 CPUs"
    )
    assert second.startswith("kl_loss_coef=0.1, seed 0: stays preempted; ")
    statuses = [outcome.statuses[spec.trial_id] for spec in outcome.specs[1:3]]
    assert statuses == [TrialStatus.INTERRUPTED] * 2


def test_what_waits_for_a_machine_that_is_no_more_is_named(play):
    outcome, script = play((finish, lose, finish, wait), TOO_LARGE)
    assert script.said[0] == (
        "kl_loss_coef=0.03, seed 0: not started, no machine is left for it; "
        "the same command goes on with it"
    )
    assert outcome.statuses[outcome.specs[3].trial_id] is TrialStatus.PENDING
    assert len(outcome.begun) == 3


def test_who_waits_is_given_up_when_no_machine_could_hold_it_for_a_minute(monkeypatch):
    now, nodes = [100.0], [{"CPU": 2.0}, {"CPU": 1.0}]
    monkeypatch.setattr("rltune.runner.waiting.time", SimpleNamespace(monotonic=lambda: now[0]))
    waiting = Waiting({"a": {"CPU": 1.0}, "b": {"CPU": 2.0}}, lambda: nodes)

    def at(second: float) -> bool:
        now[0] = second
        return waiting.is_hopeless()

    assert not at(100)
    waiting.start("a")
    del nodes[0]
    assert not at(104)  # too early for another look
    assert not at(106)
    assert not at(165)  # 59 s
    nodes.append({"CPU": 2.0})
    assert not at(171)  # another machine came
    nodes.pop()
    assert not at(180)
    assert at(240)
    assert waiting.trials == {"b"}
    waiting.start("b")
    assert not at(250)


def test_a_first_launch_that_is_refused_is_an_error(play):
    with pytest.raises(ResourceError, match="a trial asks for 2 CPUs"):
        play(TOO_LARGE)


def test_a_stop_in_the_second_launch_ends_the_command(play):
    outcome, script = play((finish, lose, finish, finish), (stop_then_lose,))
    assert len(script.seen) == 2
    assert outcome.is_interrupted
    assert outcome.statuses[outcome.specs[1].trial_id] is TrialStatus.INTERRUPTED


def test_a_stop_in_the_first_launch_leaves_no_second(play):
    outcome, script = play((finish, stop_then_lose, finish, finish))
    assert len(script.seen) == 1
    assert script.said == []
    assert outcome.is_interrupted


def test_a_trial_that_had_ended_when_its_machine_went_has_ended(play):
    outcome, script = play((finish, finish_then_lose, finish, finish))
    assert len(script.seen) == 1
    assert set(outcome.statuses.values()) == {TrialStatus.DONE}


@pytest.mark.slow
def test_a_private_cluster_never_loses_its_machine(play, monkeypatch):
    # Its daemon may die. That is no reason to start another one, and another.
    monkeypatch.setattr("rltune.runner.sweep.require_models", nothing)
    _, script = play((finish, lose, finish, finish), address=None)
    assert len(script.seen) == 1


def test_the_most_trials_of_a_command_are_trials_and_not_attempts(play):
    outcome, script = play((finish, lose), (finish,), max_trials=2)
    assert script.seen == [[("kl_loss_coef=0.0", 1), (FIRST, 1)], [(FIRST, 2)]]
    assert len(outcome.begun) == 2


def test_a_trial_that_cannot_finish_in_time_is_not_taken_up(play, monkeypatch):
    at = 2e9

    def lose_late(payload: TrialPayload):
        monkeypatch.setattr("rltune.runner.budget.time", SimpleNamespace(time=lambda: at + 1))
        return lose(payload)

    outcome, script = play((finish, finish, finish, lose_late), deadline=Deadline(at))
    assert len(script.seen) == 1
    assert script.said == []
    (late,) = outcome.declined
    assert (late.estimate.trial_id, late.left_s) == (outcome.specs[3].trial_id, 0.0)
