"""`rltune chat` over a run folder with one finished trial of two steps."""

import json

import pytest
from trained_folder import trained_folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run folder whose first trial is done."""
    run, _ = trained_folder(tmp_path_factory.mktemp("finished"), which=0)
    return run.path


def chat(rltune, *arguments):
    result = rltune("chat", *arguments, "--json")
    assert (result.code, result.err) == (0, "")
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
    assert (result.code, result.err) == (0, "")
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
