import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rltune.errors import DivergedError, InterruptedRun, StoreError, TrialError
from rltune.store.digest import metrics_digest
from rltune.store.failure import TrialFailure, failure_kind
from rltune.store.jsonl import append_jsonl, append_jsonl_many
from rltune.store.rundir import RunDir, trial_status
from rltune.types import RowStatus, TrialResult, TrialSpec, TrialStatus

RESULT = TrialResult(
    trial_id="t",
    status=TrialStatus.DONE,
    reason="",
    final_step=20,
    best_step=10,
    heldout_metric=0.5,
    base_metric=0.4,
    final_metric=0.45,
    pool_metric=0.55,
    metrics_sha256="ab",
    train_s=1.5,
    total_s=2.0,
    budget={"rollouts": 320.0},
)


@pytest.fixture
def trial(tmp_path):
    return RunDir(tmp_path / "run").create().trial("loss.kl=0.01-s0-0123456789").create()


def test_creating_twice_changes_nothing(trial):
    trial.spec.write_text("kept")
    assert RunDir(trial.path.parents[1]).create().trial(trial.trial_id).create() == trial
    assert trial.spec.read_text() == "kept"
    assert trial.checkpoint(50).name == "step-000050"


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "a\tb", "-flag", "ü"])
def test_a_trial_id_that_cannot_name_a_folder_is_refused(tmp_path, name):
    with pytest.raises(StoreError, match="cannot name a folder"):
        RunDir(tmp_path).trial(name)


def test_trials_are_listed_by_name(tmp_path):
    run = RunDir(tmp_path / "run")
    assert run.trial_dirs() == ()
    run.create()
    for name in "bca":
        run.trial(name).create()
    (run.trials / "stray-file").touch()
    assert [trial.trial_id for trial in run.trial_dirs()] == ["a", "b", "c"]


def test_task_manifests_of_an_env_axis_have_the_hash_in_their_name(tmp_path):
    assert RunDir(tmp_path).tasks().name == "tasks.json"
    assert RunDir(tmp_path).tasks("0123456789abcdef").name == "tasks-01234567.json"


def test_the_spec_round_trips(trial):
    spec = TrialSpec(
        trial_id="t",
        sweep="kl",
        axis_key="loss.kl_loss_coef",
        condition="loss.kl_loss_coef=0.01",
        axis_value={"value": 1.0, "include_zero": True},
        is_control=False,
        seed=3,
        config={"seed": 3, "optim": {"betas": [0.9, 0.999]}},
        config_hash="ff",
        expected_delta="-0.05",
    )
    trial.write_spec(spec)
    assert trial.read_spec() == spec


def test_a_result_with_nan_round_trips(trial):
    trial.write_done(replace(RESULT, pool_metric=math.nan))
    read = trial.read_done()
    assert math.isnan(read.pool_metric)
    assert replace(read, pool_metric=0.55) == RESULT


def test_status_follows_from_the_files(trial):
    assert trial_status(trial) is TrialStatus.PENDING
    trial.provenance.write_text("{}")
    assert trial_status(trial) is TrialStatus.RUNNING
    append_jsonl(trial.metrics, {"step": 0})
    trial.write_failed(TrialFailure(RowStatus.CRASH, "OOM", step=3, attempt=2))
    assert trial_status(trial) is TrialStatus.FAILED
    trial.clear_failed()
    assert trial_status(trial) is TrialStatus.RUNNING
    assert trial.path.joinpath("FAILED.2").exists()
    trial.clear_failed()  # nothing to clear
    trial.write_failed(TrialFailure(RowStatus.PREEMPTED, "SIGTERM"))
    trial.write_done(RESULT)
    assert trial_status(trial) is TrialStatus.DONE  # the result is the last word


KINDS = [
    (RowStatus.CRASH, TrialStatus.FAILED),
    (RowStatus.PREFLIGHT_CRASH, TrialStatus.FAILED),
    (RowStatus.DIVERGED, TrialStatus.DIVERGED),
    (RowStatus.PREEMPTED, TrialStatus.INTERRUPTED),
]


@pytest.mark.parametrize(("kind", "status"), KINDS)
def test_the_kind_of_a_failure_decides_the_status(trial, kind, status):
    failure = TrialFailure(kind, "because", "Traceback", 7, 1)
    trial.write_failed(failure)
    assert trial.read_failed() == failure
    assert trial_status(trial) is status


@pytest.mark.parametrize(
    "kind", [RowStatus.KEEP, RowStatus.DISCARD, RowStatus.BASELINE, RowStatus.PRUNED]
)
def test_an_outcome_with_a_result_is_no_failure(kind):
    with pytest.raises(ValueError, match="is not a failure"):
        TrialFailure(kind, "")


def test_errors_are_classified():
    assert failure_kind(DivergedError("nan"), step=4) is RowStatus.DIVERGED
    assert failure_kind(InterruptedRun("ctrl-c"), step=4) is RowStatus.PREEMPTED
    assert failure_kind(KeyboardInterrupt(), step=None) is RowStatus.PREEMPTED
    assert failure_kind(TrialError("x"), step=None) is RowStatus.PREFLIGHT_CRASH
    assert failure_kind(MemoryError(), step=0) is RowStatus.CRASH


@pytest.mark.parametrize("content", ["{}", "[]", '{"trial_id": "t"}'])
def test_a_marker_of_another_version_is_named(trial, content):
    trial.done.write_text(content)
    with pytest.raises(
        StoreError, match=r"DONE: does not hold a TrialResult: it has .* move the file away"
    ):
        trial_status(trial)


@pytest.mark.parametrize("content", [b"", b"null", b'{"trial_id": "t"', b"\x00\xff"])
def test_a_torn_marker_proves_nothing_and_is_told(trial, content):
    trial.done.write_bytes(content)
    assert (trial.read_done(), trial_status(trial)) == (None, TrialStatus.PENDING)
    assert trial.torn_markers() == ("DONE",)
    trial.failed.write_bytes(content)
    assert trial.read_failed() is None
    trial.clear_failed()
    assert trial.torn_markers() == ("DONE", "FAILED")
    trial.write_done(RESULT)
    trial.write_failed(TrialFailure(RowStatus.CRASH, "x"))
    assert (trial.read_done(), trial.torn_markers()) == (RESULT, ())


def test_a_marker_with_a_wrong_value_is_named(trial):
    trial.write_done(RESULT)
    trial.done.write_text(trial.done.read_text().replace('"done"', '"finished"'))
    with pytest.raises(StoreError, match=r"DONE: does not hold a TrialResult \('finished' is not"):
        trial.read_done()
    trial.write_failed(TrialFailure(RowStatus.CRASH, "x"))
    trial.failed.write_text(trial.failed.read_text().replace('"crash"', '"keep"'))
    with pytest.raises(StoreError, match=r"FAILED: does not hold a TrialFailure"):
        trial.read_failed()


def test_the_digest_ignores_clocks_rates_and_key_order_and_nothing_else(tmp_path):
    def digest(*rows):
        path = tmp_path / f"{len(os.listdir(tmp_path))}.jsonl"
        append_jsonl_many(path, rows)
        return metrics_digest(path)

    base = {"step": 1, "actor/pg_loss": 0.25, "x": math.nan}
    same = digest(base)
    assert digest({"time": 5.0, "timing_s/update": 2.0, "perf/tokens_per_s": 9.0, **base}) == same
    assert digest(dict(reversed(base.items()))) == same
    assert digest(base | {"actor/pg_loss": math.nextafter(0.25, 1)}) != same  # the last bit counts
    assert digest(base | {"timing": 1.0}) != same
    assert digest(base, base) != same
    assert digest() != same


def test_a_digest_of_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 0}\n{"step"')
    with pytest.raises(StoreError, match=r"m\.jsonl:2: a torn last line"):
        metrics_digest(Path(path))
