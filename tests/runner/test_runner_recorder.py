import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rltune.errors import StoreError
from rltune.lineage.calibration import calibrate
from rltune.lineage.table import LineageStore
from rltune.runner.recorder import Recorder, open_recorder
from rltune.spec.expand import expand
from rltune.store.failure import TrialFailure
from rltune.store.files import write_json_atomic
from rltune.store.jsonl import append_jsonl
from rltune.store.ledger import Ledger, LedgerEvent
from rltune.store.lock import file_lock
from rltune.store.rundir import RunDir, trial_status
from rltune.track.wandb_tracker import wandb_run_id
from rltune.types import RowStatus, TrialResult, TrialSpec, TrialStatus

METRIC = ("heldout/reward_mean", "max")


def result_of(spec: TrialSpec, metric: float = 0.5) -> TrialResult:
    numbers = {"base_metric": 0.1, "final_metric": metric, "pool_metric": 0.2}
    return TrialResult(
        trial_id=spec.trial_id,
        status=TrialStatus.DONE,
        reason="",
        final_step=2,
        best_step=2,
        heldout_metric=metric,
        metrics_sha256="0" * 64,
        train_s=1.0,
        total_s=2.0,
        **numbers,
    )


def begin(run: RunDir, spec: TrialSpec, *, attempt: int = 1) -> None:
    """Leave what an attempt leaves that has begun."""
    trial = run.trial(spec.trial_id).create()
    trial.write_spec(spec)
    write_json_atomic(trial.provenance, {"attempt": attempt, "commit": "abc", "dirty": True})
    trial.metrics.write_text('{"step": 0}\n{"step": 4}\n')


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


@pytest.fixture
def specs(small) -> tuple[TrialSpec, ...]:
    return expand(small)


def recorder_of(run: RunDir, launch: str = "launch-0001", disqualified: str = "") -> Recorder:
    return open_recorder(run, launch=launch, metric=METRIC, commit="c0", disqualified=disqualified)


def events(run: RunDir, trial_id: str) -> list[tuple[str, int]]:
    lines = Ledger(run.ledger).path.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["event"], row["attempt"]) for row in rows if row["trial_id"] == trial_id]


def rows(run: RunDir) -> list[tuple[str, str]]:
    return [(row.exp_id, row.status.value) for row in recorder_of(run).lineage.read().rows]


def test_an_attempt_that_has_begun_is_started_once(run, specs):
    recorder = recorder_of(run)
    begin(run, specs[0])
    recorder.reconcile(specs)
    recorder.reconcile(specs)
    assert events(run, specs[0].trial_id) == [("started", 1)]
    assert rows(run) == []


def test_a_finished_trial_gets_its_row_and_its_end_once(run, specs):
    recorder = recorder_of(run)
    for spec, metric in zip(specs[:2], (0.5, 0.7), strict=True):
        begin(run, spec)
        run.trial(spec.trial_id).write_done(result_of(spec, metric))
    recorder.reconcile(specs)
    recorder.reconcile(specs)
    assert events(run, specs[0].trial_id) == [("started", 1), ("done", 1)]
    assert rows(run) == [(specs[0].trial_id, "baseline"), (specs[1].trial_id, "keep")]
    row = recorder.lineage.read().rows[1]
    assert row.parent_exp == specs[0].trial_id
    assert row.commit == "abc-dirty"
    assert row.job_name == "launch-0001"
    assert row.delta_vs_best == pytest.approx(0.2)  # 0.7 - 0.5


def parents(run: RunDir) -> dict[str, str]:
    return {row.exp_id: row.parent_exp for row in recorder_of(run).lineage.read().rows}


def finish(run: RunDir, spec: TrialSpec, **changes) -> None:
    begin(run, spec)
    run.trial(spec.trial_id).write_done(replace(result_of(spec), **changes))


def test_the_parent_does_not_depend_on_who_ends_first(run, specs):
    control, early, late = specs[:3]
    recorder = recorder_of(run)
    recorder.expect([(spec, 1) for spec in specs])
    finish(run, early)
    recorder.reconcile(specs)
    assert rows(run) == []  # it waits; the ledger does not
    assert events(run, early.trial_id) == [("started", 1), ("done", 1)]
    finish(run, control)
    finish(run, late)
    recorder.reconcile(reversed(specs))
    recorder.close(specs)
    assert parents(run) == {
        control.trial_id: "",
        early.trial_id: control.trial_id,
        late.trial_id: control.trial_id,
    }


def test_what_a_dead_driver_left_is_recorded_with_the_controls_first(run, specs):
    control, other = specs[:2]
    finish(run, other)
    finish(run, control)
    for trial in (control, other):  # nothing but the order given here
        run.trial(trial.trial_id).spec.unlink()
    recorder_of(run).reconcile_all([other, control])
    assert parents(run) == {control.trial_id: "", other.trial_id: control.trial_id}


def test_another_seed_s_control_is_not_waited_for(run, specs):
    control, other = specs[0], replace(specs[1], seed=7)
    recorder = recorder_of(run)
    recorder.expect([(control, 1), (other, 1)])
    finish(run, other)
    recorder.reconcile([control, other])
    assert parents(run) == {other.trial_id: ""}


def test_a_control_that_ends_badly_is_waited_for_no_longer(run, specs):
    control, other = specs[:2]
    recorder = recorder_of(run)
    recorder.expect([(control, 1), (other, 1)])
    finish(run, other)
    begin(run, control)
    recorder.reconcile(specs)
    assert rows(run) == []
    run.trial(control.trial_id).write_failed(TrialFailure(RowStatus.CRASH, "because", "", 4, 1))
    recorder.reconcile(specs)
    assert parents(run) == {control.trial_id: "", other.trial_id: ""}


def test_the_crash_of_an_earlier_launch_is_not_the_end_of_the_control(run, specs):
    control, other = specs[:2]
    first = recorder_of(run)
    begin(run, control)
    run.trial(control.trial_id).write_failed(TrialFailure(RowStatus.CRASH, "because", "", 4, 1))
    first.reconcile(specs)
    second = recorder_of(run, "launch-0002")
    second.reconcile_all(specs)
    second.expect([(control, 2), (other, 1)])
    finish(run, other)
    second.reconcile(specs)
    assert other.trial_id not in parents(run)
    run.trial(control.trial_id).clear_failed()
    begin(run, control, attempt=2)
    run.trial(control.trial_id).write_done(result_of(control))
    second.reconcile(specs)
    assert parents(run)[other.trial_id] == f"{control.trial_id}.a2"


@pytest.mark.parametrize("how", ["the launch is over", "the driver died"])
def test_what_waited_is_written_without_its_control(run, specs, how):
    control, other = specs[:2]
    recorder = recorder_of(run)
    recorder.expect([(control, 1), (other, 1)])
    finish(run, other)
    recorder.reconcile(specs)
    assert rows(run) == []
    if how == "the launch is over":
        recorder.close(specs)
    else:
        recorder_of(run, "launch-0002").reconcile_all(specs)
    assert parents(run) == {other.trial_id: ""}


def fail(run: RunDir, spec: TrialSpec, *, attempt: int = 1, kind=RowStatus.CRASH) -> None:
    begin(run, spec, attempt=attempt)
    trial = run.trial(spec.trial_id)
    trial.clear_failed()
    trial.write_failed(TrialFailure(kind, "because", "", 4, attempt))


def test_a_control_that_finishes_in_a_later_launch_is_the_parent_and_nothing_is_rewritten(
    run, specs
):
    control, other = specs[0], replace(specs[1], expected_delta="-0.25")
    first = recorder_of(run)
    first.expect([(control, 1), (other, 1)])
    finish(run, other, heldout_metric=0.25)
    fail(run, control)
    first.close([control, other])
    assert parents(run) == {control.trial_id: "", other.trial_id: ""}
    before = run.results.read_bytes()
    second = recorder_of(run, "launch-0002")
    second.reconcile_all([control, other])
    second.expect([(control, 2)])
    begin(run, control, attempt=2)
    run.trial(control.trial_id).write_done(result_of(control, 0.5))
    second.close([control, other])
    again = f"{control.trial_id}.a2"
    assert parents(run) == {control.trial_id: "", other.trial_id: again, again: ""}
    assert run.results.read_bytes().startswith(before)  # a row is written once
    found = calibrate(second.lineage.read().rows, lambda row: None)
    assert [(one.observed, one.has_right_sign) for one in found.predictions] == [(-0.25, True)]


def test_two_machines_that_go_leave_a_row_of_each_attempt(run, specs):
    """The control's next attempt is awaited while the other trial's begins, too."""
    control, other = specs[:2]
    recorder = recorder_of(run)
    recorder.expect([(control, 1), (other, 1)])
    for spec in (control, other):
        fail(run, spec, kind=RowStatus.PREEMPTED)
    recorder.expect([(control, 2), (other, 2)])
    recorder.reconcile(specs)
    for spec in (other, control):
        begin(run, spec, attempt=2)
        run.trial(spec.trial_id).clear_failed()
        run.trial(spec.trial_id).write_done(result_of(spec))
    recorder.close(specs)
    attempts = [
        name for spec in (control, other) for name in (spec.trial_id, f"{spec.trial_id}.a2")
    ]
    assert sorted(parents(run)) == sorted(attempts)
    assert parents(run)[f"{other.trial_id}.a2"] == f"{control.trial_id}.a2"


def test_an_early_stop_is_pruned_and_done(run, specs):
    reason = "empty_filtered_steps: nothing was kept"
    finish(run, specs[1], status=TrialStatus.STOPPED_EARLY, reason=reason)
    recorder_of(run).reconcile(specs)
    (row,) = recorder_of(run).lineage.read().rows
    assert (row.status, row.notes) == (RowStatus.PRUNED, reason)
    last = Ledger(run.ledger).read().trials[specs[1].trial_id].last
    assert (last.event, last.reason) == (LedgerEvent.DONE, reason)


@pytest.mark.parametrize(("mode", "is_named"), [("disabled", False), ("offline", True)])
def test_the_row_names_the_w_and_b_run_as_w_and_b_does(run, specs, mode, is_named):
    spec = replace(specs[1], config={**specs[1].config, "tracking": {"wandb": mode}})
    finish(run, spec)
    recorder_of(run).reconcile([spec])
    (row,) = recorder_of(run).lineage.read().rows
    assert row.wandb_id == (wandb_run_id(spec.trial_id) if is_named else "")


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (RowStatus.CRASH, LedgerEvent.FAILED),
        (RowStatus.PREFLIGHT_CRASH, LedgerEvent.FAILED),
        (RowStatus.DIVERGED, LedgerEvent.DIVERGED),
        (RowStatus.PREEMPTED, LedgerEvent.INTERRUPTED),
    ],
)
def test_each_failure_is_recorded_with_its_reason(run, specs, kind, event):
    spec = specs[1]
    begin(run, spec)
    run.trial(spec.trial_id).write_failed(TrialFailure(kind, "because", "", 4, 1))
    recorder = recorder_of(run)
    recorder.reconcile(specs)
    assert events(run, spec.trial_id) == [("started", 1), (event.value, 1)]
    (row,) = recorder.lineage.read().rows
    assert (row.status, row.notes) == (kind, "because (at step 4)")
    assert Ledger(run.ledger).read().trials[spec.trial_id].last.reason == "because"


def test_a_second_attempt_gets_its_own_row(run, specs):
    spec = specs[1]
    recorder = recorder_of(run)
    begin(run, spec)
    trial = run.trial(spec.trial_id)
    trial.write_failed(TrialFailure(RowStatus.CRASH, "because", "", 4, 1))
    recorder.reconcile(specs)
    trial.clear_failed()
    begin(run, spec, attempt=2)
    recorder.reconcile(specs)
    trial.write_done(result_of(spec))
    recorder.reconcile(specs)
    assert events(run, spec.trial_id) == [
        ("started", 1),
        ("failed", 1),
        ("started", 2),
        ("done", 2),
    ]
    assert rows(run) == [(spec.trial_id, "crash"), (f"{spec.trial_id}.a2", "keep")]


def test_a_trial_that_ends_again_has_one_result(run, specs):
    """Its marker was lost, so it ended a second time, in this launch or in a later one."""
    spec = specs[1]
    recorder = recorder_of(run)
    for attempt in (1, 2):
        begin(run, spec, attempt=attempt)
        run.trial(spec.trial_id).write_done(result_of(spec))
        recorder.reconcile(specs)
        run.trial(spec.trial_id).done.unlink()
    later = recorder_of(run, launch="launch-0002")
    later.reconcile_all(specs)
    begin(run, spec, attempt=3)
    run.trial(spec.trial_id).write_done(result_of(spec))
    later.reconcile(specs)
    assert rows(run) == [(spec.trial_id, "keep")]
    assert events(run, spec.trial_id)[-1] == ("done", 3)


def test_another_result_of_a_trial_has_a_row_of_its_own(run, specs):
    """Its folder was deleted when its result was known, and it was run again."""
    spec = specs[1]
    for attempt, metric in ((1, 0.5), (2, 0.75)):
        recorder = recorder_of(run, launch=f"launch-000{attempt}")
        recorder.reconcile_all(specs)
        begin(run, spec, attempt=attempt)
        result = replace(result_of(spec), heldout_metric=metric)
        run.trial(spec.trial_id).write_done(result)
        recorder.reconcile(specs)
    found = [(row.exp_id, row.core_metric) for row in recorder.lineage.read().rows]
    assert found == [(spec.trial_id, 0.5), (f"{spec.trial_id}.a2", 0.75)]


def test_a_torn_spec_stops_nobody(run, specs):
    for spec in specs[1:3]:
        begin(run, spec)
    torn = run.trial(specs[1].trial_id)
    torn.spec.write_text('{"trial_')
    run.trial(specs[2].trial_id).write_done(result_of(specs[2]))
    recorder_of(run).reconcile_all([specs[0]])  # neither is asked for
    assert rows(run) == [(specs[2].trial_id, "keep")]
    torn.write_done(result_of(specs[1]))
    recorder_of(run, launch="launch-0002").reconcile_all(specs)
    assert [name for name, _ in rows(run)] == [specs[2].trial_id, specs[1].trial_id]


def test_a_disqualified_sweep_keeps_nothing(run, specs):
    recorder = recorder_of(run, disqualified="confounded, run anyway: to see")
    begin(run, specs[0])
    run.trial(specs[0].trial_id).write_done(result_of(specs[0]))
    recorder.reconcile(specs)
    (row,) = recorder.lineage.read().rows
    assert row.status is RowStatus.DISQUALIFIED
    assert "to see" in row.notes


def test_a_process_that_died_silently_is_buried_once(run, specs):
    spec = specs[1]
    recorder = recorder_of(run)
    begin(run, spec)
    recorder.mark_failed(spec, attempt=1, reason="its process died", is_preempted=False)
    recorder.mark_failed(spec, attempt=1, reason="again", is_preempted=False)
    recorder.reconcile(specs)
    (row,) = recorder.lineage.read().rows
    assert (row.status, row.notes) == (RowStatus.CRASH, "its process died (at step 4)")


def test_a_death_before_the_first_gate_is_a_preflight_crash(run, specs):
    recorder = recorder_of(run)
    recorder.mark_failed(specs[1], attempt=1, reason="its process died", is_preempted=False)
    recorder.reconcile(specs)
    assert events(run, specs[1].trial_id) == [("started", 1), ("failed", 1)]
    assert rows(run) == [(specs[1].trial_id, "preflight_crash")]


def test_a_death_does_not_hide_behind_the_marker_of_an_earlier_attempt(run, specs):
    trial = run.trial(specs[1].trial_id)
    begin(run, specs[1])
    trial.write_failed(TrialFailure(RowStatus.CRASH, "because", "", 4, 1))
    recorder = recorder_of(run)
    recorder.reconcile(specs)
    recorder.mark_failed(specs[1], attempt=2, reason="its process died", is_preempted=False)
    recorder.reconcile(specs)
    assert rows(run) == [(trial.trial_id, "crash"), (f"{trial.trial_id}.a2", "crash")]
    assert (trial.path / "FAILED.1").exists()


def test_a_death_during_a_stop_is_no_crash(run, specs):
    recorder = recorder_of(run)
    begin(run, specs[1])
    recorder.mark_failed(specs[1], attempt=1, reason="its process died", is_preempted=True)
    recorder.reconcile(specs)
    assert rows(run) == [(specs[1].trial_id, "preempted")]


def test_a_result_is_never_buried(run, specs):
    spec = specs[1]
    begin(run, spec)
    run.trial(spec.trial_id).write_done(result_of(spec))
    recorder_of(run).mark_failed(spec, attempt=1, reason="its process died", is_preempted=False)
    assert trial_status(run.trial(spec.trial_id)) is TrialStatus.DONE
    assert not run.trial(spec.trial_id).failed.exists()


def test_the_next_driver_records_what_a_killed_one_left(run, specs):
    done, open_, unseen = specs[:3]
    first = recorder_of(run)
    for spec in (done, open_):
        begin(run, spec)
    first.reconcile(specs)
    run.trial(done.trial_id).write_done(result_of(done))  # ended, and the driver died
    begin(run, unseen)  # began, and the driver died before it saw that

    second = recorder_of(run, "launch-0002")
    second.reconcile_all(specs[:1])  # also trials that are not asked for now
    recorder_of(run, "launch-0003").reconcile_all(specs)
    assert events(run, done.trial_id) == [("started", 1), ("done", 1)]
    for spec in (open_, unseen):
        assert events(run, spec.trial_id) == [("started", 1), ("lost", 1)]
        assert trial_status(run.trial(spec.trial_id)) is TrialStatus.INTERRUPTED
    assert sorted(rows(run)) == sorted(
        [
            (done.trial_id, "baseline"),
            (open_.trial_id, "preempted"),
            (unseen.trial_id, "preempted"),
        ]
    )


def test_a_driver_that_dies_between_marker_and_row_of_a_lost_attempt_loses_neither(
    run, specs, monkeypatch
):
    begin(run, specs[0])
    recorder_of(run).reconcile(specs)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LineageStore, "record", die)
        with pytest.raises(KeyboardInterrupt):
            recorder_of(run, "launch-0002").reconcile_all(specs)
    assert trial_status(run.trial(specs[0].trial_id)) is TrialStatus.INTERRUPTED
    recorder_of(run, "launch-0003").reconcile_all(specs)
    assert rows(run) == [(specs[0].trial_id, "preempted")]


def test_a_damaged_row_stops_no_sweep_and_is_written_again(run, specs):
    control, other = specs[:2]
    for spec in (control, other):
        finish(run, spec)
    recorder_of(run).reconcile_all(specs)
    before = run.results.read_bytes()
    damaged = before.replace(b"\tbaseline\t", b"\tbase\xffine\t", 1)
    run.results.write_bytes(damaged)
    recorder_of(run, "launch-0002").reconcile_all(specs)
    assert parents(run) == {other.trial_id: control.trial_id, control.trial_id: ""}
    assert run.results.read_bytes().startswith(damaged)


def test_a_dead_drivers_worker_may_still_finish(run, specs):
    # kill -9 of a driver leaves its workers alive for a few seconds.
    spec = specs[0]
    begin(run, spec)
    recorder_of(run).reconcile(specs)
    trial = run.trial(spec.trial_id)
    holds = threading.Event()

    def worker() -> None:
        with file_lock(trial.lock):
            holds.set()
            time.sleep(0.3)
            trial.write_done(result_of(spec))

    thread = threading.Thread(target=worker)
    thread.start()
    holds.wait()
    recorder_of(run, "launch-0002").reconcile_all(specs)
    thread.join()
    assert events(run, spec.trial_id) == [("started", 1), ("done", 1)]
    assert rows(run) == [(spec.trial_id, "baseline")]


def test_a_row_that_was_not_written_is_written_later(run, specs):
    # The driver died between the ledger and the table, or somebody removed the table.
    spec = specs[0]
    begin(run, spec)
    run.trial(spec.trial_id).write_done(result_of(spec))
    recorder_of(run).reconcile(specs)
    run.results.unlink()
    recorder_of(run, "launch-0002").reconcile_all(specs)
    assert rows(run) == [(spec.trial_id, "baseline")]
    assert events(run, spec.trial_id) == [("started", 1), ("done", 1)]


def gates(run: RunDir, spec: TrialSpec, rewards: list[float]) -> None:
    """Leave the per-task outcomes of the gate at step 2."""
    gate = {"step": 2, "tasks_sha256": "t", "success": [0] * len(rewards), "reward": rewards}
    append_jsonl(run.trial(spec.trial_id).heldout, gate | {"fault": [""] * len(rewards)})


def test_the_difference_from_the_best_is_said_against_the_noise(run, specs):
    control, close, far = specs[:3]
    finish(run, control, heldout_metric=0.5)
    gates(run, control, [0.0, 1.0, 0.0, 1.0])
    finish(run, close, heldout_metric=0.75)
    gates(run, close, [1.0, 1.0, 1.0, 0.0])
    finish(run, far, heldout_metric=1.75)
    gates(run, far, [2.0, 2.0, 2.0, 1.0])  # close + 1 on every task
    recorder_of(run).reconcile((control, close, far))
    found = recorder_of(run).lineage.read().rows
    assert [row.status.value for row in found] == ["baseline", "keep", "keep"]
    assert found[0].notes == ""
    # successes: b = 2, c = 1 of 4: (3 - 2) / 6 +- 1.96 * sqrt((5/6 - 1/36) / 6) = .167 +- .718
    assert found[1].notes == "within noise: +0.250 in [-0.551, +0.885]"
    assert found[2].notes == "beyond noise: +1.000 in [+1.000, +1.000]"


def shared_recorder(run: RunDir, path: Path, domains: tuple[str, ...] = ("sokoban",)) -> Recorder:
    return open_recorder(
        run, launch="l", metric=METRIC, commit="", disqualified="", shared=path, domains=domains
    )


def test_a_shared_table_gets_every_row_once_however_often_the_driver_dies(run, specs, tmp_path):
    table = tmp_path / "nights.tsv"
    finish(run, specs[0])
    recorder_of(run).reconcile(specs)  # a launch without the shared table
    recorder = shared_recorder(run, table)
    recorder.reconcile_all(specs)
    finish(run, specs[1])
    recorder.close(specs)
    shared_recorder(run, table).reconcile_all(specs)
    own, shared = recorder.lineage.read().rows, recorder.shared.read().rows
    assert [row.exp_id for row in shared] == [f"run/{row.exp_id}" for row in own]
    assert shared[1].parent_exp == f"run/{own[0].exp_id}"
    assert [row.status for row in shared] == [row.status for row in own]


def test_a_shared_table_of_other_tasks_or_metric_is_refused_before_anything_starts(
    run, specs, tmp_path
):
    table = tmp_path / "nights.tsv"
    finish(run, specs[0])
    shared_recorder(run, table).reconcile_all(specs)
    with pytest.raises(StoreError, match="would mix frozen_lake and sokoban"):
        shared_recorder(run, table, ("frozen_lake",))
    with pytest.raises(StoreError, match="was created with"):
        open_recorder(
            run, launch="l", metric=("x", "max"), commit="", disqualified="", shared=table
        )
