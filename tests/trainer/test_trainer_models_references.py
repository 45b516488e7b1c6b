"""A trial that starts from the model of another one, in a sweep after its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from patience import HANG_S
from small_sweep import save_policy, small_sweep
from trained_folder import train_one

from rltune.cli.entry import run
from rltune.errors import InputError, StoreError
from rltune.runner.inputs import require_same_inputs
from rltune.runner.recorder import open_recorder
from rltune.spec.load import load_sweep
from rltune.spec.trial_reference import looking_in_runs
from rltune.store.rundir import RunDir
from rltune.trainer.models.base import portable_name
from rltune.trainer.models.references import made_model, make_references
from rltune.trainer.preflight.models import model_problems
from rltune.trainer.start import checkpoint_digest

LORA = """  policy.lora.rank: 4
  policy.lora.alpha: 8
  advantage.kind: grpo
  optim.lr: 1.0e-2
  rollout.groups: 2"""
METRIC = ("heldout/reward_mean", "max")


def text_of(policy, *, adapted=False, init=""):
    text = small_sweep(
        policy=policy,
        gate_every=1,
        checkpoint_every=1,
        train_tasks=8,
        values="[0.0, 0.01]",
        seeds="[0, 1]",
        turns=2,
    )
    held = LORA + (f"\n  policy.lora.init: {init}" if init else "")
    return text.replace("  rollout.groups: 2", held) if adapted else text


@pytest.fixture(scope="module", params=["full", pytest.param("lora", marks=pytest.mark.slow)])
def source(request, tmp_path_factory):
    """A runs dir that holds one run, `before-0`, with one finished trial; and its trial."""
    folder = tmp_path_factory.mktemp("source")
    policy = save_policy(folder / "policy")
    _, spec = train_one(folder, text_of(policy, adapted=request.param == "lora"), which=0)
    (folder / "small-0").rename(folder / "before-0")
    run = RunDir(folder / "before-0")
    _record(run, [spec])
    return run, run.trial(spec.trial_id), request.param == "lora"


def _record(run, specs):
    recorder = open_recorder(run, launch="launch-0001", metric=METRIC, commit="c", disqualified="")
    recorder.reconcile_all(specs)
    return recorder.lineage.read().rows


@pytest.fixture
def runs(source, tmp_path):
    """A copy of that runs dir, its trial, and whether it has an adapter."""
    return _copied(source, tmp_path)


@pytest.fixture(scope="module")
def with_export(source, tmp_path_factory):
    """The same with its second checkpoint exported, once for all and in this process.

    The process that a driver starts for it takes seconds; slow tests start it.
    """
    copy = _copied(source, tmp_path_factory.mktemp("with_export"))
    base = copy[0].path.parent
    with pytest.MonkeyPatch.context() as patch, looking_in_runs(base), torch.random.fork_rng():
        patch.setattr(subprocess, "run", _run_here)
        made_model(f"trial:before-0/{copy[1].trial_id}@2", base)
    return copy


def _run_here(command, *, _run=subprocess.run, **options):
    """Do what `python -P -m rltune ...` does; run other commands as they are."""
    if command[1:4] != ["-P", "-m", "rltune"]:
        return _run(command, **options)
    return subprocess.CompletedProcess(command, run(command[4:]), "", "")


@pytest.fixture
def exported(with_export, tmp_path):
    """A copy of that one."""
    return _copied(with_export, tmp_path)


def _copied(source, folder):
    run, trial, is_adapted = source
    shutil.copytree(run.path.parent, folder / "runs", symlinks=True)
    copy = RunDir(folder / "runs" / run.path.name)
    return copy, copy.trial(trial.trial_id), is_adapted


def grown(runs, name, **options):
    """Train a trial of another sweep in the same runs dir; return its run and its spec."""
    folder = runs[0].path.parent
    text = text_of(name, **options)
    (folder / "small.yaml").write_text(text, encoding="utf-8")
    loaded = load_sweep(folder / "small.yaml")
    with looking_in_runs(folder):
        make_references([condition.config for condition in loaded.conditions], folder)
    return train_one(folder, text, which=0)


def weights_at_start(run, spec):
    return json.loads(run.trial(spec.trial_id).provenance.read_text())["weights_sha256"]


def test_a_trial_starts_with_the_weights_of_the_checkpoint(exported):
    before, trial, is_adapted = exported
    run, spec = grown(exported, f"trial:before-0/{trial.trial_id}@2")
    started = weights_at_start(run, spec)
    exported = json.loads((before.path / "models" / f"{trial.trial_id}@2/rltune.json").read_text())
    assert started == exported["weights_sha256"]
    if not is_adapted:
        assert started == checkpoint_digest(trial.checkpoint(2))


def test_its_inputs_name_the_folder_and_a_changed_one_is_refused(exported):
    _before, trial, _ = exported
    run, spec = grown(exported, f"trial:before-0/{trial.trial_id}@2")
    origin = json.loads(run.trial(spec.trial_id).provenance.read_text())
    folder = f"before-0/models/{trial.trial_id}@2"
    names = {Path(name).name for name in origin["inputs"]}
    assert {str(Path(name).parent) for name in origin["inputs"]} == {folder}
    assert "model.safetensors" in names
    assert "README.md" not in names
    base = run.path.parent
    require_same_inputs(run, base)
    weights = base / folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(StoreError, match=f"{trial.trial_id}@2/model.safetensors: has changed"):
        require_same_inputs(run, base)


def test_its_row_names_the_row_of_the_trial_that_it_grew_from(exported):
    _before, trial, _ = exported
    run, spec = grown(exported, f"trial:before-0/{trial.trial_id}@2")
    (row,) = _record(run, [spec])
    assert row.parent_exp == f"before-0/{trial.trial_id}"


def test_an_adapter_goes_on_with_the_bits_of_the_checkpoint(runs):
    _before, trial, is_adapted = runs
    if not is_adapted:
        pytest.skip("the trial trained all weights")
    policy = json.loads(trial.spec.read_text())["config"]["policy"]["model"]
    init = f"trial:before-0/{trial.trial_id}@2"
    run, spec = grown(runs, policy, adapted=True, init=init)
    assert weights_at_start(run, spec) == checkpoint_digest(trial.checkpoint(2))
    (row,) = _record(run, [spec])
    assert row.parent_exp == f"before-0/{trial.trial_id}"


def test_it_is_exported_once(exported):
    before, trial, _ = exported
    base, name = before.path.parent, f"trial:before-0/{trial.trial_id}@2"
    folder = before.path / "models" / f"{trial.trial_id}@2"
    before_ns = (folder / "config.json").stat().st_mtime_ns
    with looking_in_runs(base):
        assert made_model(name, base) == folder
    assert (folder / "config.json").stat().st_mtime_ns == before_ns
    assert not list(folder.glob("adapter*"))  # merged, where it trained an adapter


def test_an_export_in_a_run_that_cannot_be_written_is_read(exported):
    """A folder in place of the lock stands for a read-only disk: root may write anywhere."""
    before, trial, _ = exported
    base, name = before.path.parent, f"trial:before-0/{trial.trial_id}@2"
    with looking_in_runs(base):
        folder = made_model(name, base)
        (folder.parent / ".lock").unlink()
        (folder.parent / ".lock").mkdir()
        assert made_model(name, base) == folder
        other = f"trial:before-0/{trial.trial_id}@1"
        with pytest.raises(InputError) as caught:
            made_model(other, base)
    start = f"policy.model: '{other}' cannot be exported to {folder.parent}/{trial.trial_id}@1 ("
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith("rltune model --out DIR, and set policy.model to DIR.")


def test_an_export_outlives_the_checkpoint_that_was_cleaned_up(exported):
    before, trial, _ = exported
    base, name = before.path.parent, f"trial:before-0/{trial.trial_id}@2"
    with looking_in_runs(base):
        folder = made_model(name, base)
        shutil.rmtree(trial.checkpoint(2))
        assert made_model(name, base) == folder


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_exported_is_named(runs):
    before, trial, _ = runs
    base, name = before.path.parent, f"trial:before-0/{trial.trial_id}@1"
    path = trial.checkpoint(1) / "policy.safetensors"
    path.unlink()
    path.write_bytes(b"torn")
    with looking_in_runs(base), pytest.raises(InputError) as caught:
        made_model(name, base)
    assert str(caught.value).startswith(f"policy.model: '{name}' cannot be exported: ")
    assert not list((before.path / "models").glob("*@*"))


def test_a_check_names_what_a_reference_lacks(runs):
    before, trial, is_adapted = runs
    base = before.path.parent
    (base / "small.yaml").write_text(text_of(f"trial:before-0/{trial.trial_id}@9"))
    with looking_in_runs(base):
        problems = list(dict.fromkeys(model_problems(load_sweep(base / "small.yaml"), base)))
    (problem,) = problems
    assert "checkpoint '9' is missing. There are those of steps 0, 1, 2." in str(problem)
    assert "policy.model" in problem.where
    if not is_adapted:
        init = f"trial:before-0/{trial.trial_id}"
        (base / "small.yaml").write_text(text_of("tiny", adapted=True, init=init))
        with looking_in_runs(base):
            (problem,) = set(model_problems(load_sweep(base / "small.yaml"), base))
        assert "trained all weights, so it has no adapter." in str(problem)


def test_a_check_accepts_one_that_is_not_exported_yet(runs):
    before, trial, _ = runs
    base = before.path.parent
    (base / "small.yaml").write_text(text_of(f"trial:before-0/{trial.trial_id}"))
    with looking_in_runs(base):
        assert list(model_problems(load_sweep(base / "small.yaml"), base)) == []
    assert not (before.path / "models").exists()


DRIVE = """
import sys
from pathlib import Path
from rltune.spec.trial_reference import looking_in_runs
from rltune.trainer.models.base import portable_name
from rltune.trainer.models.references import made_model
with looking_in_runs(Path(sys.argv[2])):
    made_model(sys.argv[1], Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_during_an_export_leaves_no_exporter(runs):
    """Whoever comes next exports the model; it neither fails nor meets the first one's child."""
    before, trial, is_adapted = runs
    if is_adapted:
        pytest.skip("one kind of export is enough")
    base, name = before.path.parent, f"trial:before-0/{trial.trial_id}@1"
    part = before.path / "models" / f".{trial.trial_id}@1.part"
    with subprocess.Popen([sys.executable, "-c", DRIVE, name, str(base)]) as driver:
        end = time.monotonic() + HANG_S
        while not part.exists() and driver.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        os.kill(driver.pid, signal.SIGKILL)
    assert part.exists()  # it was killed in the middle
    with looking_in_runs(base):
        folder = made_model(name, base)
    assert (folder / "SHA256SUMS").is_file()
    assert [path.name for path in folder.parent.glob("*@*")] == [folder.name]
    assert not part.exists()


def test_a_reference_is_named_by_run_trial_and_step(runs):
    before, trial, is_adapted = runs
    base = before.path.parent
    with looking_in_runs(base):
        assert portable_name(f"trial:{before.path}/{trial.trial_id}", base) == (
            f"trial:before-0/{trial.trial_id}@{trial.read_done().best_step}"
        )
        if is_adapted:
            init = portable_name(f"trial:before-0/{trial.trial_id}@1", base, adapter=True)
            assert init == f"trial:before-0/{trial.trial_id}@1"
    assert portable_name("/models/mine", base) == "mine"
    assert portable_name("models/mine", base) == "models/mine"
    assert portable_name("Qwen/Qwen2.5-3B", base) == "Qwen/Qwen2.5-3B"
