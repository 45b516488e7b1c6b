"""`rltune test` over a run folder with one finished trial of two steps."""

import json
import os
from pathlib import Path

import pytest
from trained_folder import trained_folder

from rltune.cli.final_test import paragraph
from rltune.policy.tiny import SHIPPED

NAMES = "kl_loss_coef=0.0@0, kl_loss_coef=0.01@0, kl_loss_coef=0.0@1, kl_loss_coef=0.01@1"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run folder whose first trial is done and whose others have not begun."""
    run, _ = trained_folder(tmp_path_factory.mktemp("finished"), which=0, test_tasks=6)
    return run.path


def test_the_first_call_plays_and_the_second_shows(rltune, run, trial):
    first = rltune("test", "kl_loss_coef=0.0@0")
    assert (first.code, first.err) == (0, "")
    path = trial.path / "test.json"
    record = json.loads(path.read_text())
    low, high = record["interval"]
    assert record["checkpoint"] == "best"
    assert record["step"] == trial.read_done().best_step
    manifest = json.loads(run.tasks().read_text())
    assert record["tasks"] == [task["task_id"] for task in manifest["test"]]
    assert record["floor"] == manifest["test_floor"]
    origin = json.loads(trial.provenance.read_text())
    same = ("commit", "dirty", "diff_sha256", "source_sha256", "versions", "inputs")
    assert {key: record["code"][key] for key in same} == {key: origin[key] for key in same}
    assert (record["code"]["device"], record["code"]["is_of_trial"]) == ("cpu", True)
    assert first.out == (
        f"{trial.trial_id}, step {record['step']}: solved {record['successes']} of 6 test tasks, "
        f"{record['success_rate']:.3f} [{low:.3f}, {high:.3f}] (95 % Wilson, over tasks), "
        f"temperature 1. A random player solves {record['floor']['rate']:.3f}, a perfect one "
        "1.000. This trial's test tasks were evaluated once.\n"
    )
    before = path.stat().st_mtime_ns
    assert rltune("test", "kl_loss_coef=0.0@0").out == first.out
    assert path.stat().st_mtime_ns == before


def test_code_of_ones_own_in_a_trial_can_be_refused(rltune, trial, monkeypatch):
    monkeypatch.setenv("RLTUNE_NO_CUSTOM_CODE", "1")
    spec = json.loads(trial.spec.read_text())
    env = {key: spec["config"]["env"][key] for key in ("prompt", "train_tasks", "split_seed")}
    spec["config"]["env"] = {**env, "kind": "custom", "factory": "os:abort", "arguments": {}}
    spec["config"]["policy"]["model"] = str(SHIPPED / "sokoban")
    trial.spec.write_text(json.dumps(spec))
    refused = rltune("test", str(trial.path))
    assert refused.code == 2
    assert "env.factory: 'os:abort' is custom code, which --no-custom-code" in refused.err


@pytest.mark.parametrize(
    "change",
    [{"source_sha256": "0" * 64}, {"versions": {"torch": "1.0"}}],
    ids=["code", "packages"],
)
def test_other_code_than_the_trials_is_said(rltune, trial, change):
    origin = json.loads(trial.provenance.read_text())
    trial.provenance.write_text(json.dumps({**origin, **change}))
    said = rltune("test", trial.trial_id).out
    assert " It was trained with other code or packages than it was tested with. " in said


def test_other_inputs_than_the_trials_are_refused_before_a_look(rltune, trial):
    origin = json.loads(trial.provenance.read_text())
    data = Path(origin["base"]) / "small.yaml"  # any file
    inputs = {**origin["inputs"], "small.yaml": "0" * 64, "gone.txt": "1" * 64}
    trial.provenance.write_text(json.dumps({**origin, "inputs": inputs}))
    refused = rltune("test", trial.trial_id)
    assert refused.code == 2
    assert f"small.yaml: has changed since {trial.trial_id} read it. Restore it." in refused.err
    assert f"gone.txt: is gone since {trial.trial_id} read it." in refused.err
    assert not (trial.path / "test.json").exists()
    assert data.exists()


def test_a_record_that_names_no_code_is_shown(rltune, trial):
    rltune("test", trial.trial_id)
    path = trial.path / "test.json"
    record = json.loads(path.read_text())
    del record["code"], record["checkpoint_sha256"]
    path.write_text(json.dumps(record))
    assert "other code" not in rltune("test", trial.trial_id).out
    again = json.loads(rltune("test", trial.trial_id, "--again", "--json").out)
    assert (again["looks"], again["earlier"][0]["code"]) == (2, None)


def test_again_looks_again_with_the_same_luck(rltune, trial):
    first = json.loads(rltune("test", trial.trial_id, "--json").out)
    again = json.loads(rltune("test", trial.trial_id, "--again", "--json").out)
    assert again["success"] == first["success"]
    assert (first["looks"], again["looks"], len(again["earlier"])) == (1, 2, 1)
    said = rltune("test", trial.trial_id).out
    assert said.endswith("were evaluated 2 times; this is the last evaluation.\n")


def test_another_checkpoint_needs_again(rltune, trial):
    best = json.loads(rltune("test", trial.trial_id, "--json").out)["step"]
    other = next(step for step in (1, 2) if step != best)
    refused = rltune("test", trial.trial_id, "--checkpoint", str(other))
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith(
        f"the test tasks were played with the checkpoint of step {best}, not {other}. "
        "Add --again to evaluate again; each evaluation is counted.\n"
    )
    allowed = rltune("test", trial.trial_id, "--checkpoint", str(other), "--again", "--json")
    assert json.loads(allowed.out)["step"] == other


@pytest.mark.parametrize("name", ["0.0@0", "kl_loss_coef=0.0-s0", "path", "relative"])
def test_every_way_to_name_a_trial(rltune, trial, run, name):
    rltune("test", trial.trial_id)
    given = {"path": str(trial.path), "relative": os.path.relpath(trial.path)}.get(name, name)
    result = rltune("test", given)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{trial.trial_id}, step ")


def test_a_run_folder_and_a_runs_dir_may_be_given(rltune, run, trial, tmp_path):
    rltune("test", trial.trial_id)
    moved = Path("elsewhere")
    (tmp_path / "runs").rename(tmp_path / moved)
    assert rltune("test", "0.0@0").code == 2
    assert rltune("test", "0.0@0", "--runs-dir", str(moved)).code == 0
    assert rltune("test", "0.0@0", str(moved / run.path.name)).code == 0


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("nothing", f"'nothing' is not a trial here. Choose one of {NAMES}."),
        ("", f"'' is not a trial here. Choose one of {NAMES}."),
        ("0.0@7", f"'0.0@7' is not a trial here. Choose one of {NAMES}."),
    ],
)
def test_a_name_of_no_trial_is_refused(rltune, run, given, line):
    result = rltune("test", given)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"error: runs/{run.path.name}: {line}\n"


def test_a_start_of_several_ids_is_refused(rltune, run):
    result = rltune("test", "kl_loss_coef=0.0-")
    assert result.code == 2
    assert "'kl_loss_coef=0.0-' names 2 trials: small-0/kl_loss_coef=0.0-s0-" in result.err
    assert result.err.endswith(". Give more of the id, or the trial's folder.\n")


def test_a_trial_that_has_not_started_is_refused(rltune, run):
    result = rltune("test", "0.01@1")
    assert result.code == 2
    assert result.err.endswith(
        ": the trial has not started, so no gate has finished. Run it first.\n"
    )


def test_a_trial_without_a_gate_is_refused(rltune, trial):
    trial.heldout.unlink()
    result = rltune("test", trial.trial_id)
    assert result.code == 2
    assert ": no gate has finished, so no checkpoint is chosen." in result.err


def test_an_edited_manifest_is_refused(rltune, run, trial):
    data = json.loads(run.tasks().read_text())
    data["test"][0]["difficulty"] += 1
    run.tasks().write_text(json.dumps(data))
    result = rltune("test", trial.trial_id)
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "does not match its sha256; it was edited or torn. Restore it." in result.err
    assert not (trial.path / "test.json").exists()


def test_tasks_of_another_sweep_are_refused(rltune, run, trial):
    data = json.loads(run.tasks().read_text())
    data["sha256"] = "0" * 64
    run.tasks().write_text(json.dumps(data))
    result = rltune("test", trial.trial_id)
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "no tasks*.json here holds the tasks of the trial" in result.err


def test_a_missing_checkpoint_is_refused(rltune, trial):
    result = rltune("test", trial.trial_id, "--checkpoint", "9")
    assert result.code == 2
    assert ": checkpoint '9' is missing. There are those of steps " in result.err


def test_a_trial_that_is_not_done_is_tested_with_a_warning(rltune, trial):
    trial.done.unlink()
    result = rltune("test", trial.trial_id)
    assert result.code == 0
    assert result.err == (
        "The trial has not finished: its gate may still choose another checkpoint.\n"
    )
    assert rltune("test", trial.trial_id).err == ""  # only shown


def test_the_paragraph_of_a_greedy_test_with_measures_and_faults():
    record = {
        "trial_id": "a-s0", "step": 40, "successes": 1, "n": 4, "success_rate": 0.25,
        "interval": [0.0456, 0.6994], "do_sample": False, "temperature": 0.0,
        "floor": {"kind": "exact", "rate": 0.125},
        "ceiling": 0.5, "auxiliary": {"em": 0.25, "f1": 0.5}, "fault_count": 2, "looks": 1,
    }  # fmt: skip
    assert paragraph(record) == (
        "a-s0, step 40: solved 1 of 4 test tasks, 0.250 [0.046, 0.699] (95 % Wilson, over tasks), "
        "greedy. A random player solves 0.125, a perfect one 0.500. Means: em 0.250, f1 0.500. "
        "Scored were 4 of 6 test tasks; 2 had a fault and do not count. This proves nothing (more "
        "than 25% were lost): repair what failed, and test again. This trial's test tasks were "
        "evaluated once."
    )


def test_help_has_an_example(rltune):
    result = rltune("test", "--help")
    assert result.code == 0
    assert "\n  Example:\n    rltune test kl_loss_coef=0.01@0\n" in result.out
