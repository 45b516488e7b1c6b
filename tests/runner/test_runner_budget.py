"""What a launch may start."""

import time
from dataclasses import replace

import pytest
from test_runner_sweep import prepare, request_of

from rltune.runner.budget import (
    Deadline,
    decline,
    estimate,
    first_trials,
    read_declined,
)
from rltune.runner.sweep import run_sweep
from rltune.runner.trial import run_trial
from rltune.spec.expand import expand
from rltune.store.failure import TrialFailure
from rltune.store.jsonl import append_jsonl_many
from rltune.store.rundir import RunDir
from rltune.store.speed import speed_key
from rltune.types import RowStatus, TrialStatus


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run").create()


def begin(run, spec, *, seconds=(5.0, 2.0)):
    """Write the rows of a trial: the gate at step 0, then one a step."""
    trial = run.trial(spec.trial_id).create()
    trial.write_spec(spec)
    rows = [{"step": step, "timing_s/eval": time} for step, time in enumerate(seconds)]
    append_jsonl_many(trial.metrics, rows)
    return trial


def test_an_estimate_rests_on_the_nearest_measurement(small, run):
    control, treated, other = expand(small)[:3]
    nothing = Deadline(time.time() + 60)
    unknown = estimate(run, control, nothing)
    assert (unknown.seconds, unknown.source) == (None, "nothing was measured yet")

    prior = replace(nothing, prior={speed_key(control.config): 4.0}, source="runs/old")
    found = estimate(run, control, prior)
    assert (found.seconds, found.source) == (8.0, "the plan's estimate, from runs/old")

    begin(run, treated)  # with a reference: another work a step
    found = estimate(run, control, prior)
    assert found.seconds == 5.0 + 2 * 2.0
    assert found.source == "measured on 1 steps of another condition of this sweep"

    found = estimate(run, other, prior)  # the same work as `treated`
    assert found.source == "measured on 1 steps of this sweep"
    begun = estimate(run, treated, prior)
    assert (begun.steps, begun.start_s, begun.seconds) == (1, 0.0, 2.0)


def test_what_cannot_finish_is_declined(small, run):
    treated, other = expand(small)[1:3]
    begin(run, treated)
    assert decline(run, other, None) is None
    assert decline(run, other, Deadline(time.time() + 60)) is None
    late = decline(run, other, Deadline(time.time() + 8))  # it needs 9
    assert late is not None
    assert (late.estimate.trial_id, late.estimate.seconds) == (other.trial_id, 9.0)
    assert 7 < late.left_s <= 8


def test_one_of_unknown_length_starts_unless_time_is_up(small, run):
    spec = expand(small)[0]
    assert decline(run, spec, Deadline(time.time() + 1)) is None
    assert decline(run, spec, Deadline(time.time() - 1)) is not None


def test_begun_trials_come_first_and_failed_ones_last(small, run):
    failed, pending, begun = expand(small)[:3]
    run.trial(failed.trial_id).create().write_failed(TrialFailure(RowStatus.CRASH, "x"))
    trial = run.trial(begun.trial_id).create()
    trial.write_failed(TrialFailure(RowStatus.PREEMPTED, "stopped"))
    todo = [failed, pending, begun]
    assert first_trials(run, todo, None) == todo
    assert first_trials(run, todo, 2) == [begun, pending]
    assert first_trials(run, todo, 9) == [begun, pending, failed]


def test_a_trial_looks_at_the_deadline_when_its_turn_comes(small, make_payload, tmp_path):
    launch = tmp_path / "launch"
    launch.mkdir()
    payload = make_payload(small, condition=1, stop_file=launch / "STOP")
    begin(RunDir(payload.folder.parents[1]), expand(small)[2])
    late = replace(payload, deadline=Deadline(time.time() + 3))
    assert run_trial(late) is TrialStatus.PENDING
    (declined,) = read_declined(launch)
    assert (declined.estimate.trial_id, declined.estimate.seconds) == (payload.spec.trial_id, 9.0)


def test_a_sweep_whose_time_is_up_starts_nothing(small, tmp_path, models_are_fine):
    prepare(request_of(small, tmp_path))
    request = request_of(small, tmp_path, deadline=Deadline(time.time() - 1))
    outcome = run_sweep(request, on_start=lambda *_: None, on_tick=lambda: None)
    assert (len(outcome.begun), outcome.is_interrupted) == (0, False)
    assert len(outcome.declined) == len(outcome.specs)
