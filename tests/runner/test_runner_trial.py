import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from cases import each
from safetensors.torch import load_file, save_file

import rltune
from rltune.errors import DivergedError, InputError, InterruptedRun, Problem
from rltune.runner.trial import describe_failure, run_trial, steps_done
from rltune.spec.load import load_sweep
from rltune.store.digest import metrics_digest
from rltune.store.files import read_json, to_json
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.types import RowStatus, TrialStatus


@pytest.fixture(scope="module")
def done(small, payload_in, tmp_path_factory):
    """Return the payload of a trial that has ended; nobody changes its folder."""
    payload, threads = payload_in(tmp_path_factory.mktemp("done"), small), torch.get_num_threads()
    assert run_trial(payload) is TrialStatus.DONE
    torch.set_num_threads(threads)
    return payload


def test_a_trial_ends_done_and_says_where_it_comes_from(small, make_payload, capfd):
    payload = make_payload(small)
    torch.set_num_threads(2)
    assert run_trial(payload) is TrialStatus.DONE

    trial = TrialDir(payload.folder)
    result = trial.read_done()
    assert result is not None
    assert result.final_step == 2
    assert result.metrics_sha256 == metrics_digest(trial.metrics)
    assert [row["step"] for row in read_metrics(trial.metrics).rows] == [0, 1, 2]
    assert trial.read_spec() == replace(payload.spec, config=to_json(payload.spec.config))
    assert yaml.safe_load(trial.config.read_text()) == to_json(payload.spec.config)

    origin = read_json(trial.provenance)
    assert origin["device"] == "cpu"
    assert (origin["dtype"], origin["engine"], origin["threads"]) == ("float32", "torch", 1)
    assert origin["manifest_sha256"] == read_json(payload.manifest)["sha256"]
    assert len(origin["weights_sha256"]) == len(origin["tokenizer_sha256"]) == 64
    assert origin["pid"] == os.getpid()
    assert (origin["attempt"], origin["earlier"]) == (1, [])
    assert origin["argv"] == ["test"]
    assert torch.get_num_threads() == 1
    assert capfd.readouterr() == ("", "")  # all of it went to trial.log


def test_an_engine_is_closed_where_no_tracker_can_be_opened(small, make_payload, monkeypatch):
    closed = []

    class Engine:
        def close(self):
            closed.append(True)

    def full(*given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rltune.trainer.engines.make_engine", lambda *given: Engine())
    monkeypatch.setattr("rltune.runner.trial.make_trackers", full)
    payload = make_payload(small)
    assert run_trial(payload) is TrialStatus.FAILED
    assert "No space left" in TrialDir(payload.folder).read_failed().reason
    assert closed == [True]


@pytest.mark.usefixtures("threads")
def test_a_finished_trial_is_left_alone(done):
    before = {path: path.stat().st_mtime_ns for path in done.folder.rglob("*")}
    assert run_trial(replace(done, attempt=2)) is TrialStatus.DONE
    assert {path: path.stat().st_mtime_ns for path in done.folder.rglob("*")} == before


def test_nothing_starts_once_the_stop_file_exists(small, make_payload, tmp_path):
    payload = make_payload(small)
    payload.stop_file.touch()
    assert run_trial(payload) is TrialStatus.PENDING
    assert not TrialDir(payload.folder).provenance.exists()


def test_a_crash_becomes_a_marker_with_reason_place_and_attempt(small, make_payload):
    payload = make_payload(small, attempt=3)
    trial = TrialDir(payload.folder).create()
    trial.metrics.mkdir()  # nothing can be logged
    assert run_trial(payload) is TrialStatus.FAILED

    failure = trial.read_failed()
    assert failure is not None
    assert (failure.kind, failure.step, failure.attempt) == (RowStatus.PREFLIGHT_CRASH, None, 3)
    assert failure.reason.startswith("IsADirectoryError: ")
    place = re.search(r"\((rltune/\S+\.py):(\d+)\)$", failure.reason)
    assert place is not None
    source = (Path(rltune.__file__).parent.parent / place[1]).read_text().splitlines()
    assert "open(" in source[int(place[2]) - 1]  # the line that raised, not one of its callers
    assert "Traceback (most recent call last)" in failure.traceback
    assert failure.reason in trial.log.read_text()


def test_a_new_attempt_sets_the_old_marker_aside(small, make_payload):
    payload = make_payload(small)
    trial = TrialDir(payload.folder).create()
    trial.metrics.mkdir()
    run_trial(payload)
    trial.metrics.rmdir()
    assert run_trial(replace(payload, attempt=2)) is TrialStatus.DONE
    assert not trial.failed.exists()
    assert json.loads((trial.path / "FAILED.1").read_text())["attempt"] == 1
    origin = read_json(trial.provenance)
    assert (origin["attempt"], [old["attempt"] for old in origin["earlier"]]) == (2, [1])
    (before,) = origin["earlier"]
    same = ("versions", "weights_sha256", "tokenizer_sha256", "manifest_sha256", "source_sha256")
    assert {name: before[name] for name in same} == {name: origin[name] for name in same}
    log = [line.partition("rltune.trial: ")[2] for line in trial.log.read_text().splitlines()]
    digest = origin["weights_sha256"][:12]
    assert any(line.startswith(f"policy {digest}, tasks ") for line in log)
    assert sum(line.startswith("step ") and " tokens/s" in line for line in log) == 1


def test_a_model_that_was_replaced_between_attempts_is_refused(
    write_sweep, make_payload, small_policy, tmp_path
):
    folder = tmp_path / "policy"
    shutil.copytree(small_policy, folder)
    payload = make_payload(load_sweep(write_sweep(checkpoint_every=1)))
    config = {**payload.spec.config, "policy": {**payload.spec.config["policy"]}}
    config["policy"]["model"] = str(folder)
    payload = replace(payload, spec=replace(payload.spec, config=config))
    trial = TrialDir(payload.folder)
    first = replace(payload, stop_file=trial.checkpoint(1))
    assert run_trial(first) is TrialStatus.INTERRUPTED

    weights = load_file(folder / "model.safetensors")
    changed = {name: tensor + 0.01 for name, tensor in weights.items()}
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    assert run_trial(replace(payload, attempt=2)) is TrialStatus.FAILED
    failure = trial.read_failed()
    assert failure is not None
    assert failure.reason.startswith("ForeignCheckpointError: ")
    assert "began with other weights" in failure.reason
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert run_trial(replace(payload, attempt=3)) is TrialStatus.DONE


def test_an_interrupted_trial_goes_on_bit_equal(write_sweep, make_payload):
    # F1: 4 steps against 2 + 2. The checkpoint of step 2 is the stop file, so that the first
    # attempt ends exactly there.
    loaded = load_sweep(write_sweep(steps=4, gate_every=3, checkpoint_every=2))
    whole = make_payload(loaded, condition=2, name="whole")
    assert run_trial(whole) is TrialStatus.DONE

    halved = make_payload(loaded, condition=2, name="halved")
    trial = TrialDir(halved.folder)
    first = replace(halved, stop_file=trial.checkpoint(2))
    assert run_trial(first) is TrialStatus.INTERRUPTED
    failure = trial.read_failed()
    assert failure is not None
    assert (failure.kind, failure.step) == (RowStatus.PREEMPTED, 2)
    assert run_trial(replace(halved, attempt=2)) is TrialStatus.DONE

    assert_bit_equal(TrialDir(whole.folder), trial, step=4)


def assert_bit_equal(one: TrialDir, other: TrialDir, *, step: int) -> None:
    assert metrics_digest(one.metrics) == metrics_digest(other.metrics)
    assert one.heldout.read_bytes() == other.heldout.read_bytes()
    assert one.episodes.read_bytes() == other.episodes.read_bytes()
    files = sorted(path.name for path in one.checkpoint(step).glob("*.safetensors"))
    assert "policy.safetensors" in files
    for name in files:
        left, right = (load_file(trial.checkpoint(step) / name) for trial in (one, other))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name


def test_training_changes_the_weights(done, small_policy):
    # Else the equality above would hold for a trial that learns nothing.
    before = load_file(small_policy / "model.safetensors")
    after = load_file(TrialDir(done.folder).checkpoint(2) / "policy.safetensors")
    assert before.keys() == after.keys()
    assert any(not torch.equal(after[key], before[key]) for key in before)


@pytest.mark.slow
def test_the_environment_of_the_caller_does_not_reach_the_numbers(small, make_payload):
    # The same trial started with two threads in the environment: resources.threads decides.
    payload = make_payload(small)
    run_trial(payload)
    other = make_payload(small, name="other")
    program = (
        "import pickle, sys\n"
        "from rltune.runner.trial import run_trial\n"
        "run_trial(pickle.load(sys.stdin.buffer))\n"
        "import os, torch\n"
        "print(torch.get_num_threads(), os.environ['OMP_NUM_THREADS'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(other),
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert done.stdout.split() == [b"1", b"1"]
    digests = {metrics_digest(TrialDir(p.folder).metrics) for p in (payload, other)}
    assert len(digests) == 1


def test_a_relative_model_folder_is_the_drivers(small, make_payload, small_policy):
    payload = make_payload(small)
    config = {**payload.spec.config, "policy": {**payload.spec.config["policy"]}}
    config["policy"]["model"] = small_policy.name
    moved = replace(payload, spec=replace(payload.spec, config=config), base=small_policy.parent)
    assert run_trial(moved) is TrialStatus.DONE


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"max_context": 16, "max_response_tokens": 8},
            "rollout.max_context: the first prompt has 17 tokens, rollout.max_context is 16: no "
            "episode would get a valid answer. Raise it to 19 at least.",
        ),
        (
            {"max_response_tokens": 1},
            "rollout.max_response_tokens: the shortest valid answer, such as "
            "'<answer>Up</answer>', has 2 tokens to be sampled, rollout.max_response_tokens is 1.",
        ),
    ],
)
def test_limits_that_leave_no_room_fail_before_the_first_step(small, make_payload, limits, said):
    """K3, K10: in place of a whole trial of nothing that ends as done."""
    payload = make_payload(small)
    rollout = {**payload.spec.config["rollout"], **limits}
    spec = replace(payload.spec, config={**payload.spec.config, "rollout": rollout})
    assert run_trial(replace(payload, spec=spec)) is TrialStatus.FAILED
    trial = TrialDir(payload.folder)
    failure = trial.read_failed()
    assert failure is not None
    assert failure.kind is RowStatus.PREFLIGHT_CRASH
    assert said in failure.reason
    assert steps_done(trial) is None


def test_a_model_that_cannot_be_loaded_fails_before_the_first_step(small, make_payload):
    payload = make_payload(small)
    config = {**payload.spec.config, "policy": {**payload.spec.config["policy"]}}
    config["policy"]["model"] = "./nowhere"
    assert (
        run_trial(replace(payload, spec=replace(payload.spec, config=config))) is TrialStatus.FAILED
    )
    failure = TrialDir(payload.folder).read_failed()
    assert failure is not None
    assert failure.kind is RowStatus.PREFLIGHT_CRASH
    assert "'./nowhere' is not a folder" in failure.reason


@each(
    ("error", "step", "kind"),
    [
        (DivergedError("loss is nan"), 3, RowStatus.DIVERGED),
        (InterruptedRun("stopped"), 3, RowStatus.PREEMPTED),
        (KeyboardInterrupt(), 3, RowStatus.PREEMPTED),
        (SystemExit(1), 3, RowStatus.CRASH),
        (ValueError("x"), 0, RowStatus.CRASH),
        (ValueError("x"), None, RowStatus.PREFLIGHT_CRASH),
    ],
)
def test_each_error_has_its_kind(error, step, kind):
    failure = describe_failure(error, step=step, attempt=2)
    assert (failure.kind, failure.step, failure.attempt) == (kind, step, 2)


def test_a_reason_is_one_line():
    failure = describe_failure(ValueError("two\nlines"), step=1, attempt=1)
    assert failure.reason == "ValueError: two lines"


def test_a_refusal_is_shown_plainly():
    problem = Problem("rollout.max_context", "9000 tokens do not fit.", action="Give at most 4096.")
    failure = describe_failure(InputError(problem), step=None, attempt=1)
    assert failure.reason == str(problem)


def test_steps_done_reads_what_is_there(tmp_path: Path):
    trial = TrialDir(tmp_path)
    assert steps_done(trial) is None
    trial.metrics.write_text('{"step": 0}\n{"step": 7}\n{"step"')
    assert steps_done(trial) == 7


def test_the_prompt_is_kept_as_it_is_shown(done):
    trial = TrialDir(done.folder)
    first, response, onward = trial.prompt.read_text(encoding="utf-8").partition("⟦response⟧")
    assert first.endswith("<answer>")
    assert onward.endswith("<answer>")
    assert response
    assert len(read_json(trial.provenance)["prompt_sha256"]) == 64
