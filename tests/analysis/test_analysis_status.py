from dataclasses import replace

import pytest
from goldens import assert_golden, drawn, masked
from run_folders import CONTROL, CRASH, START, TREATED, FolderWriter, finished_sweep, mixed_sweep

from rltune.analysis.status import read_state
from rltune.analysis.trial_states import Gate, state_json
from rltune.analysis.usage import Cost, cost_of, total
from rltune.report.render_status import silence, spent, status_view
from rltune.store.cleaning import size_of
from rltune.store.failure import TrialFailure
from rltune.store.files import dumps, loads, write_json_atomic
from rltune.store.lock import file_lock, take_driver_lock
from rltune.store.origin import Origin, write_origin
from rltune.store.run_folder import read_folder
from rltune.types import RowStatus, TrialStatus

NOW = START + 25.0


@pytest.fixture
def mixed(tmp_path):
    return mixed_sweep(tmp_path)


def states(state):
    return {(trial.condition, trial.seed): trial for trial in state.trials}


def test_state_of_every_trial(mixed):
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        state = read_state(read_folder(mixed.run), now=NOW)
    found = states(state)
    assert [trial.status for trial in state.trials] == [
        TrialStatus.DONE,
        TrialStatus.FAILED,
        TrialStatus.RUNNING,
        TrialStatus.PENDING,
        TrialStatus.PENDING,
        TrialStatus.PENDING,
    ]
    running = found[CONTROL, 1]
    assert (running.step, running.steps, running.base, running.last) == (10, 20, 0.4, 0.5)
    assert running.step_s == 2.0
    assert running.eta_s == 20.0  # ten steps of two seconds
    assert running.silent_s == 5.0  # the last line came at 20 s
    assert found[TREATED, 0].reason == CRASH.reason
    assert found[CONTROL, 0].best_step == 20
    assert state.has_failed
    # ten steps of the running trial and twenty of three others, one at a time: 70 x 2 s
    assert state.eta_s == 140.0


def test_cost_so_far(mixed):
    """The finished trial says 44 s; the running one made ten steps of 1.25 + 0.75 s."""
    state = read_state(read_folder(mixed.run), now=NOW)
    found = states(state)
    assert found[CONTROL, 0].cost == Cost(wall_s=44.0, core_s=44.0, rollouts=160, tokens=4000)
    assert found[CONTROL, 1].cost == Cost(wall_s=20.0, core_s=20.0, rollouts=80, tokens=2000)
    assert found[TREATED, 0].cost == Cost()
    assert state.cost == Cost(wall_s=64.0, core_s=64.0, rollouts=240, tokens=6000)
    assert state.scale == (0.4, 0.6)
    assert found[CONTROL, 1].gates == (Gate(0, 0.4), Gate(10, 0.5))


def test_cost_counts_reserved_devices_and_judges():
    config = {"resources": {"cpus": 2.0, "gpus": 0.5}}
    rows = [
        {"step": 0, "timing_s/eval": 4.0},
        {"step": 1, "timing_s/collect": 1.0, "timing_s/credit": 3.0, "timing_s/judge": 2.5,
         "adca/judge_calls": 3.0, "adca/judge_tokens": 50.0, "budget/rollouts": 8.0},
        {"step": 2, "timing_s/collect": 2.0, "adca/judge_calls": 1.0, "adca/judge_tokens": 9.0,
         "budget/rollouts": 16.0, "budget/generated_tokens": 70.0},
    ]  # fmt: skip
    cost = cost_of(config, rows, wall_s=None)
    assert cost == Cost(  # 4 + 1 + 3 + 2; the judge's time is part of credit's
        wall_s=10.0, core_s=20.0, gpu_s=5.0, rollouts=16, tokens=70, judge_calls=4, judge_tokens=59
    )
    assert spent(cost) == (
        "16 rollouts, 70 tokens, 5 s of GPU time, 20 s of core time, 4 judge calls of 59 tokens"
    )
    assert total([cost, cost]).judge_tokens == 118


def test_a_trial_that_says_nothing_for_long_is_told(mixed):
    """A step takes 2 s; ten of them are 20 s, so the least silence of a minute decides."""
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        quiet = read_state(read_folder(mixed.run), now=START + 20.0 + 60.0)
        silent = read_state(read_folder(mixed.run), now=START + 20.0 + 61.0)
    assert not any(map(silence, quiet.trials))
    (said,) = filter(None, map(silence, silent.trials))
    log = mixed.run.trial(mixed.spec(CONTROL, 1).trial_id).log
    assert said == (f"{CONTROL}, seed 1: no new step for 1 min 1 s; a step takes 2.0 s; log: {log}")
    assert said in " ".join(drawn(status_view(silent), 300).split("\n"))


def test_trials_outside_the_comparison_are_listed(mixed):
    """A child that runs (its process holds its lock), one that failed, and a repetition."""
    parent = mixed.spec(CONTROL, 0)
    for name, trained in (("child-a", True), ("child-b", False)):
        trial = mixed.run.child(name).create()
        trial.write_spec(replace(parent, trial_id=name))
        start = {"step": 20, "which": "best"} if trained else {}
        changes = {"loss.kl_loss_coef": [0.0, 0.02]}
        write_origin(
            trial,
            Origin(kind="child", parent=parent.trial_id, folder="x", changes=changes, **start),
        )
        write_json_atomic(trial.provenance, {})
    mixed.run.child("child-b").write_failed(CRASH)
    repeated = mixed.run.new_rerun(parent.trial_id)
    mixed.run.new_rerun(parent.trial_id)  # has not begun: it has no spec yet
    repeated.write_spec(parent)
    origin = mixed.run.trial(parent.trial_id).path
    repeated.metrics.write_bytes((origin / "metrics.jsonl").read_bytes())
    repeated.done.write_bytes((origin / "DONE").read_bytes())
    write_origin(repeated, Origin(kind="rerun", parent=parent.trial_id, folder="x"))
    write_json_atomic(repeated.verdict, {"verdict": "reproduced"})
    prefix = mixed.run.new_rerun(parent.trial_id)
    prefix.write_spec(parent)
    write_origin(prefix, Origin(kind="rerun", parent=parent.trial_id, folder="x"))
    prefix.write_failed(TrialFailure(RowStatus.HARNESS_ABORT, "as asked", "", 1, 1))
    with file_lock(mixed.run.child("child-a").lock):
        state = read_state(read_folder(mixed.run), now=NOW)
    assert [(d.kind, d.note, d.trial.status, d.trial.last) for d in state.derived] == [
        (
            "child",
            "from step 20 (best), loss.kl_loss_coef 0.0 -> 0.02",
            TrialStatus.RUNNING,
            None,
        ),
        ("child", "loss.kl_loss_coef 0.0 -> 0.02", TrialStatus.FAILED, None),
        ("rerun", "reproduced", TrialStatus.DONE, 0.6),
        ("rerun", "", TrialStatus.STOPPED_EARLY, None),  # a prefix was asked for
    ]
    assert len(state.trials) == 6
    assert state.cost.wall_s == 64.0  # none of theirs
    later = read_state(read_folder(mixed.run), now=NOW).derived[0].trial
    assert later.status is TrialStatus.INTERRUPTED
    state = replace(state, size_bytes=183_000)
    assert_golden("status_derived_120", masked(drawn(status_view(state), 120), mixed.root))


def test_json_has_the_numbers_of_the_screen(mixed):
    state = read_state(read_folder(mixed.run), now=NOW)
    data = state_json(state)
    assert data["format"] == "rltune-status-1"
    assert data["counts"] == {"pending": 3, "done": 1, "failed": 1, "interrupted": 1}
    assert data["scale"] == [0.4, 0.6]
    assert data["cost"]["tokens"] == 6000
    assert data["trials"][0]["gates"] == [
        {"step": 0, "value": 0.4}, {"step": 10, "value": 0.5}, {"step": 20, "value": 0.6},
    ]  # fmt: skip
    assert loads(dumps(data)) == data  # plain data


def test_a_speed_that_a_trial_has_not_measured_is_that_of_others_like_it(tmp_path):
    """Control steps take 2 s. No treated trial has made one, so the control's speed serves."""
    writer = FolderWriter(tmp_path)
    writer.train(writer.spec(CONTROL, 0), {0: 4, 10: 5}, steps=10)
    writer.train(writer.spec(TREATED, 0), {0: 4}, steps=0)
    with take_driver_lock(writer.run.lock, argv=["rltune"]):
        found = states(read_state(read_folder(writer.run), now=NOW))
    assert found[TREATED, 0].eta_s == 40.0
    assert found[CONTROL, 1].eta_s is None  # it does not run


def test_without_a_driver_nothing_runs(mixed):
    """A killed sweep leaves the same trial files as a running one; its lock tells them apart."""
    state = read_state(read_folder(mixed.run), now=NOW)
    trial = states(state)[CONTROL, 1]
    assert state.driver is None
    assert trial.status is TrialStatus.INTERRUPTED
    assert trial.reason == "its driver is gone; run the same command to resume"
    assert trial.eta_s is None


def test_seeds_of_an_earlier_launch_are_shown(tmp_path):
    first = FolderWriter(tmp_path, seeds=(7,))
    first.finish(first.spec(CONTROL, 7), {0: 4, 10: 5, 20: 6})
    second = FolderWriter(tmp_path, seeds=(0,))
    assert first.run == second.run  # the run folder does not depend on the seeds
    found = [(trial.condition, trial.seed) for trial in read_state(read_folder(second.run)).trials]
    assert found == [(CONTROL, 0), (TREATED, 0), (CONTROL, 7)]


@pytest.mark.parametrize("width", [80, 120])
def test_status_text(mixed, width):
    state = read_state(read_folder(mixed.run), now=NOW)
    assert state.size_bytes == size_of(mixed.run.path) > 0
    state = replace(state, size_bytes=183_000)  # depends on the file system's blocks
    text = masked(drawn(status_view(state), width), mixed.root)
    assert_golden(f"status_{width}", text)


def test_a_warning_of_a_card_is_told(tmp_path):
    writer = finished_sweep(tmp_path)
    spec = writer.spec(TREATED, 1)
    write_json_atomic(
        writer.run.trial(spec.trial_id).model_card, {"warnings": ["inversion: it is"]}
    )
    state = read_state(read_folder(writer.run))
    (warned,) = [trial for trial in state.trials if trial.warnings]
    assert (warned.trial_id, warned.warnings) == (spec.trial_id, ("inversion: it is",))
    assert f"warning: {TREATED}, seed 1: inversion: it is" in drawn(status_view(state), 120)
    writer.run.trial(spec.trial_id).model_card.write_text("{")  # torn: only the warning is lost
    assert not any(trial.warnings for trial in read_state(read_folder(writer.run)).trials)
