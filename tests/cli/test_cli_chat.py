"""`rltune chat` over a run folder with one finished trial of two steps."""

import json
from pathlib import Path

import pytest
from trained_folder import adapted, trained_folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run folder whose first trial is done."""
    run, _ = trained_folder(tmp_path_factory.mktemp("finished"), which=0)
    return run.path


def chat(rltune, *arguments):
    result = rltune("chat", *arguments, "--json")
    assert (result.err, result.code) == ("", 0)
    return json.loads(result.out)


def test_the_held_out_tasks_are_played_before_and_after(rltune, run, trial):
    said = chat(rltune, "0.0@0", "--tasks", "3", "--checkpoint", "latest")
    manifest = json.loads(run.tasks().read_text())
    seeds = [task["seed"] for task in manifest["heldout"][:3]]
    before, after = said["sides"]
    assert (before["name"], before["step"]) == ("before", 0)
    assert (after["name"], after["step"]) == ("after", 2)
    for side in (before, after):
        assert [task["seed"] for task in side["tasks"]] == seeds
        assert all(task["turns"] for task in side["tasks"])
        for task in side["tasks"]:
            assert task["reward"] == pytest.approx(sum(t["reward"] for t in task["turns"]))


def test_more_tasks_than_there_are_is_said(rltune, run, trial):
    n = len(json.loads(run.tasks().read_text())["heldout"])
    result = rltune("chat", "0.0@0", "--tasks", str(n + 1), "--alone", "--json")
    assert result.err == f"{n + 1} tasks were asked for; the trial has {n} held-out tasks.\n"
    assert len(json.loads(result.out)["sides"][0]["tasks"]) == n


def test_the_checkpoint_of_step_0_plays_as_before(rltune, trial):
    before, after = chat(rltune, "0.0@0", "--tasks", "4", "--checkpoint", "0")["sides"]
    assert before["tasks"] == after["tasks"]


def test_a_later_one_plays_otherwise(rltune, trial):
    """The same seeds: what differs is what was learned. One changed weight is enough."""
    import torch
    from safetensors.torch import load_file, save_file

    from rltune.store.files import sha256_file

    path = trial.checkpoint(2) / "policy.safetensors"
    weights = load_file(path)
    torch.manual_seed(0)
    changed = {name: w + 0.5 * torch.randn_like(w) for name, w in weights.items()}
    path.unlink()
    save_file(changed, path)
    state = json.loads((trial.checkpoint(2) / "state.json").read_text())
    state["sha256"][path.name] = sha256_file(path)
    (trial.checkpoint(2) / "state.json").write_text(json.dumps(state))
    before, after = chat(rltune, "0.0@0", "--tasks", "4", "--checkpoint", "2")["sides"]
    assert before["tasks"] != after["tasks"]


def test_a_reference_names_its_checkpoint(rltune, run, trial):
    said = chat(rltune, f"trial:{run.path.name}/{trial.trial_id}@1", "--alone")
    assert said["step"] == 1
    assert [side["name"] for side in said["sides"]] == ["after"]


def test_seeds_may_be_given_and_two_calls_are_equal(rltune, trial):
    said = chat(rltune, "0.0@0", "--seed", "7", "--tasks", "2")
    assert [task["seed"] for task in said["sides"][0]["tasks"]] == [7, 8]
    assert chat(rltune, "0.0@0", "--seed", "7", "--tasks", "2") == said


def test_the_text_has_a_heading_for_each_and_ends_with_both(rltune, trial):
    result = rltune("chat", "0.0@0", "--tasks", "2", "--checkpoint", "2", "--temperature", "0")
    assert (result.err, result.code) == ("", 0)
    lines = result.out.splitlines()
    headings = [line for line in lines if line.startswith("===")]
    assert headings == ["=== before training, step 0 ===", "=== after training, step 2 ==="] * 2
    assert lines[-2].startswith("before training, step 0: solved 0 of 2, mean reward ")
    assert lines[-1].startswith("after training, step 2: solved 0 of 2, mean reward ")
    assert any(line.startswith("> ") for line in lines)


def test_a_trial_that_has_not_started_is_refused(rltune, trial):
    result = rltune("chat", "0.01@1")
    assert result.code == 2
    assert "the trial has not started" in result.err


def test_a_checkpoint_that_is_not_there_is_refused(rltune, trial):
    result = rltune("chat", "0.0@0", "--checkpoint", "9")
    assert result.code == 2
    assert "checkpoint '9' is missing" in result.err


@pytest.mark.slow
def test_play_takes_a_reference_and_plays_the_exported_folder(rltune, run, trial):
    name = f"trial:{run.path.name}/{trial.trial_id}@2"
    result = rltune("play", "sokoban", "--policy", name, "--tasks", "2", "--temperature", "0")
    assert result.code == 0
    assert "Solved 0 of 2 tasks" in result.out
    folder = run.path / "models" / f"{trial.trial_id}@2"
    again = rltune("play", "sokoban", "--policy", str(folder), "--tasks", "2", "--temperature", "0")
    assert again.out == result.out


def test_play_refuses_a_reference_by_the_name_of_the_option(rltune, run):
    result = rltune("play", "sokoban", "--policy", f"trial:{run.path.name}/nobody")
    assert result.code == 2
    assert result.err.startswith(f"error: --policy: 'trial:{run.path.name}/nobody' names no trial ")


def test_where_the_gate_chose_step_0_both_are_said_to_be_the_same(rltune, trial):
    done = json.loads(trial.done.read_text())
    trial.best_heldout.unlink()
    trial.best_heldout.symlink_to(trial.checkpoint(0).name)
    trial.done.write_text(json.dumps({**done, "best_step": 0}))
    result = rltune("chat", "0.0@0")
    assert result.out.endswith("Both are the same policy: the gate chose step 0.\n")
    assert "same policy" not in rltune("chat", "0.0@0", "--alone").out
    result = rltune("chat", "0.0@0", "--checkpoint", "0")
    assert result.out.endswith("Both are the same policy.\n")
    assert "same policy" not in rltune("chat", "0.0@0", "--checkpoint", "1").out


def test_an_exported_folder_plays_as_its_trial_did(rltune, trial):
    assert rltune("model", "0.0@0", "--checkpoint", "2", "--out", "my-model").code == 0
    asked = ("--seed", "3", "--tasks", "2")
    _, after = chat(rltune, "0.0@0", "--checkpoint", "2", *asked)["sides"]
    said = chat(rltune, "my-model", *asked)
    (model,) = said["sides"]
    assert (said["folder"], said["step"], model["name"]) == ("my-model", 2, "model")
    assert model["tasks"] == after["tasks"]
    base = trial.read_spec().config["policy"]["model"]
    before, _ = chat(rltune, "0.0@0", *asked)["sides"]
    played, _ = chat(rltune, "my-model", "--base", str(base), *asked)["sides"]
    assert played["tasks"] == before["tasks"]


def test_a_plain_folder_plays_what_env_says(rltune, trial):
    folder = str(trial.read_spec().config["policy"]["model"])
    result = rltune("chat", folder)
    assert result.code == 2
    assert result.err.startswith(f"error: --env: {folder} does not say which environment it plays")
    said = rltune("chat", folder, "--env", "sokoban", "--tasks", "2")
    assert (said.code, said.err) == (0, "")
    assert said.out.count("=== model ===") == 2
    assert said.out.splitlines()[-1].startswith("model: solved 0 of 2, mean reward ")


def test_code_that_a_folder_names_is_not_run(rltune, trial):
    assert rltune("model", "0.0@0", "--out", "my-model").code == 0
    card = json.loads(Path("my-model/rltune.json").read_text())
    card["play"]["env"] = {"kind": "custom", "factory": "evil:Env"}
    Path("my-model/rltune.json").write_text(json.dumps(card))
    result = rltune("chat", "my-model")
    assert result.code == 2
    assert "env.factory names the code 'evil:Env', which is not run" in result.err


@pytest.mark.parametrize("option", ["--env", "--base"])
def test_options_of_a_folder_are_refused_for_a_trial(rltune, trial, option):
    result = rltune("chat", "0.0@0", option, "sokoban")
    assert result.code == 2
    assert result.err.startswith(f"error: {option}: a trial has its own")


def test_a_checkpoint_of_a_folder_is_refused(rltune, trial):
    assert rltune("model", "0.0@0", "--out", "my-model").code == 0
    result = rltune("chat", "my-model", "--checkpoint", "1")
    assert result.code == 2
    assert result.err == "error: --checkpoint: my-model is the folder of one model. Leave it out.\n"


@pytest.mark.slow
def test_an_adapter_plays_beside_its_base_where_that_is(rltune, tmp_path):
    run = adapted(tmp_path / "lora", "float32")
    (trial,) = run.trial_dirs()
    assert rltune("model", str(trial.path), "--out", "mine", "--checkpoint", "2").code == 0
    result = rltune("chat", "mine")
    assert result.err == (
        "error: --base: mine is an adapter of 'policy', which is not here. Give the folder or hub "
        "id of its base.\n"
    )
    base = trial.read_spec().config["policy"]["model"]
    folder = chat(rltune, "mine", "--base", base, "--seed", "0")["sides"]
    own = chat(rltune, str(trial.path), "--checkpoint", "2", "--seed", "0")["sides"]
    assert [side["name"] for side in folder] == ["base", "model"]
    assert [side["tasks"] for side in folder] == [side["tasks"] for side in own]
