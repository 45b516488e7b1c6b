"""References to trials: what they mean, and what is refused."""

import json
import shutil

import pytest

from rltune.errors import InputError
from rltune.spec.trial_reference import (
    checkpoint_of,
    looking_in,
    looking_in_runs,
    model_path,
    require_reference,
)

ONE, TWO = "kl=0.1-s0-aaaa", "kl=0.1-s1-bbbb"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A runs dir with one run of two trials: one has finished, the other goes on."""
    monkeypatch.delenv("RLTUNE_RUNS_DIR", raising=False)
    runs = tmp_path / "runs"
    for name, rank in ((ONE, 0), (TWO, 4)):
        trial = runs / "kl-1" / "trials" / name
        for step in (1, 20):
            folder = trial / "checkpoints" / f"step-{step:06d}"
            folder.mkdir(parents=True)
            (folder / "policy.safetensors").touch()
        (trial / "checkpoints" / "latest").symlink_to("step-000020")
        (trial / "checkpoints" / "best_heldout").symlink_to("step-000001")
        spec = {"config": {"policy": {"lora": {"rank": rank}}}}
        (trial / "spec.json").write_text(json.dumps(spec))
    (runs / "kl-1" / "plan.json").touch()
    (runs / "kl-1" / "trials" / ONE / "DONE").touch()
    return runs


@pytest.mark.parametrize(
    ("text", "name", "step"),
    [
        (f"kl-1/{ONE}", ONE, 1),
        (f"kl-1/{ONE}@best", ONE, 1),
        (f"kl-1/{ONE}@best_heldout", ONE, 1),
        (f"kl-1/{ONE}@latest", ONE, 20),
        (f"kl-1/{ONE}@20", ONE, 20),
        (f"kl-1/{TWO}@1", TWO, 1),
        ("kl-1/kl=0.1-s0", ONE, 1),
        (f"runs/kl-1/{ONE}", ONE, 1),  # a path
    ],
)
def test_what_it_means(runs, text, name, step):
    found = checkpoint_of(f"trial:{text}", runs.parent, "policy.model")
    assert (found.trial.name, found.step, found.run.name) == (name, step, "kl-1")


def test_an_absolute_path_is_a_run_too(runs, tmp_path):
    found = checkpoint_of(f"trial:{runs}/kl-1/{ONE}", tmp_path / "elsewhere", "policy.model")
    assert found.trial == runs / "kl-1" / "trials" / ONE


@pytest.mark.parametrize("tail", ["", "-adapter"])
def test_an_exported_checkpoint_may_be_gone(runs, tail):
    """`rltune clean` deletes a checkpoint that the gate did not choose; its export stays."""
    shutil.rmtree(runs / "kl-1" / "trials" / TWO / "checkpoints" / "step-000020")
    name = f"trial:kl-1/{TWO}@20"
    with pytest.raises(InputError, match="checkpoint '20' is missing"):
        checkpoint_of(name, runs.parent, "policy.model")
    whole = runs / "kl-1" / "models" / f"{TWO}@20{tail}"
    whole.mkdir(parents=True)
    with pytest.raises(InputError, match="checkpoint '20' is missing"):  # an export is not whole
        checkpoint_of(name, runs.parent, "policy.model")
    (whole / "SHA256SUMS").touch()
    assert checkpoint_of(name, runs.parent, "policy.model").step == 20


def test_it_stands_for_a_folder_in_the_run(runs):
    name = f"trial:kl-1/{TWO}@20"
    assert model_path(name, runs.parent) == runs / "kl-1" / "models" / f"{TWO}@20"
    adapter = model_path(name, runs.parent, adapter=True)
    assert adapter == runs / "kl-1" / "models" / f"{TWO}@20-adapter"
    assert model_path("my/model", runs.parent) == runs.parent / "my" / "model"


def test_the_runs_dir_of_the_trial_that_names_it_goes_first(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("RLTUNE_RUNS_DIR", str(tmp_path / "nowhere"))
    name, base = f"trial:kl-1/{ONE}", tmp_path / "base"
    with pytest.raises(InputError):
        checkpoint_of(name, base, "policy.model")
    with looking_in(runs / "kl-1" / "trials" / TWO):
        assert checkpoint_of(name, base, "policy.model").step == 1
    with looking_in_runs(runs):
        assert checkpoint_of(name, base, "policy.model").step == 1
    monkeypatch.setenv("RLTUNE_RUNS_DIR", str(runs))
    assert checkpoint_of(name, base, "policy.model").step == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "kl-1",
            "names no run and trial. Give trial:RUN/TRIAL, with @STEP, @best or @latest behind it "
            "where another one is meant.",
        ),
        ("kl-1/", "names no run and trial. Give trial:RUN/TRIAL, "),
        ("kl-2/x", "names the run 'kl-2', which is neither in "),
        ("kl-1/x", f"names no trial of kl-1. Choose one of {ONE}, {TWO}."),
        ("kl-1/kl=0.1", f"names 2 trials of kl-1. Choose one of {ONE}, {TWO}."),
        (f"kl-1/{ONE}@7", ": checkpoint '7' is missing. There are those of steps 1, 20."),
        (f"kl-1/{ONE}@first", "names no checkpoint. Give trial:RUN/TRIAL, "),
        (
            f"kl-1/{TWO}",
            f"may still move: {TWO} has not finished. Let it finish, or give a step: @20.",
        ),
        (f"kl-1/{TWO}@latest", "may still move: "),
    ],
)
def test_what_is_refused(runs, text, said):
    with pytest.raises(InputError) as caught:
        checkpoint_of(f"trial:{text}", runs.parent, "policy.model")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"policy.model: 'trial:{text}'")
    assert said in line


def test_an_adapter_needs_a_trial_that_trained_one(runs):
    where = "policy.lora.init"
    found = require_reference(f"trial:kl-1/{TWO}@1", runs.parent, adapter=True, where=where)
    assert found.has_adapter
    with pytest.raises(InputError) as caught:
        require_reference(f"trial:kl-1/{ONE}", runs.parent, adapter=True, where=where)
    assert str(caught.value) == (
        f"policy.lora.init: 'trial:kl-1/{ONE}' trained all weights, so it has no adapter. "
        "Name it in policy.model."
    )
