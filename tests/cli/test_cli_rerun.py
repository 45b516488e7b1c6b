"""`rltune rerun` and `rltune continue` over a run folder with one finished trial of three steps."""

import json
import shutil
from dataclasses import replace

import pytest
import yaml
from trained_folder import trained_folder

from rltune.cli.rerun import compared_text
from rltune.lineage.record import RowContext, row_for
from rltune.lineage.table import LineageStore
from rltune.store.compare import Comparison, compare_trials
from rltune.store.files import read_json, write_json_atomic
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.types import RowStatus

METRIC = ("heldout/reward_mean", "max")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run folder whose trial with a KL term is done, with its lineage row."""
    run, spec = trained_folder(tmp_path_factory.mktemp("finished"), which=1, steps=3)
    result = run.trial(spec.trial_id).read_done()
    context = RowContext(metric_name=METRIC[0], metric_mode="max", timestamp="t", commit="c")
    LineageStore(run.results, *METRIC).append(row_for(spec, result, (), context))
    return run.path


def rows(run):
    return LineageStore(run.results, *METRIC).read().rows


def children(run):
    return [TrialDir(path) for path in sorted(run.children.glob("*"))]


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_verify_runs_it_again_and_finds_it_bit_equal(rltune, run, trial):
    before = files(trial.path)
    result = rltune("rerun", "0.01@0", "--verify")
    assert result.code == 0
    assert result.out.startswith(
        f"{trial.trial_id}: reproduced, bit-equal in steps 0 to 3: 4 rows of metrics without "
        "clocks and rates, 4 held-out gates, "
    )
    assert files(trial.path) == before  # nothing of the original is touched
    again = run.reruns / "0001" / trial.trial_id
    assert read_json(again / "verify.json")["verdict"] == "reproduced"
    assert run.trial_dirs() == (trial,)  # no second seed
    row = rows(run)[-1]
    assert (row.exp_id, row.parent_exp) == (f"{trial.trial_id}.r1", trial.trial_id)
    assert row.status is RowStatus.DISCARD
    assert (row.trial_id, row.expected_delta) == (row.exp_id, "")  # counted nowhere as the trial
    assert rltune("rerun", str(again)).err.endswith("Give the original.\n")


@pytest.mark.parametrize(
    ("comparison", "text"),
    [
        (Comparison(1, 1, (3,), None), "1 row {}, 1 held-out gate, 1 checkpoint of step 3"),
        (Comparison(2, 0, (), None), "2 rows {}, 0 held-out gates, 0 checkpoints"),
    ],
)
def test_what_was_compared_is_counted(comparison, text):
    assert compared_text(comparison) == text.format("of metrics without clocks and rates")


def test_a_prefix_is_compared_cheaply(rltune, run, trial):
    result = rltune("rerun", trial.trial_id, "--verify", "--steps", "1", "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert (data["verdict"], data["last_step"]) == ("reproduced", 1)
    assert (data["comparison"]["metric_rows"], data["comparison"]["gates"]) == (2, 2)
    steps = [row["step"] for row in read_metrics(TrialDir(run.path / data["folder"]).metrics).rows]
    assert steps == [0, 1]
    assert rows(run)[-1].status is RowStatus.HARNESS_ABORT


def edit_metric(trial, step, name, change):
    lines = [json.loads(line) for line in trial.metrics.read_text().splitlines()]
    lines[step][name] = change(lines[step][name])
    trial.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_first_difference_is_named_with_both_values(rltune, run, trial):
    real = read_metrics(trial.metrics).rows[2]["rollout/reward_mean"]
    edit_metric(trial, 2, "rollout/reward_mean", lambda value: value + 1)
    result = rltune("rerun", "0.01@0", "--verify")
    assert result.code == 1
    assert f"{trial.trial_id}: not reproducible; compared steps 0 to 3" in result.out
    said = f"metrics.jsonl, step 2, rollout/reward_mean: {real + 1} before, {real} now"
    assert f"First difference: {said}." in result.out
    row = rows(run)[-1]
    assert row.status is RowStatus.DISQUALIFIED
    assert said in row.notes
    assert rltune("rerun", "0.01@0", "--steps", "1").code == 0  # only --verify judges


def test_other_software_is_said_before_and_in_the_verdict(rltune, trial):
    origin = read_json(trial.provenance)
    origin["versions"]["torch"] = "1.0"
    write_json_atomic(trial.provenance, origin)
    edit_metric(trial, 1, "rollout/reward_mean", lambda value: value + 1)
    result = rltune("rerun", "0.01@0", "--verify", "--steps", "1")
    assert result.code == 1
    warning = result.err.index("WARNING: torch: 1.0 then, ")
    assert warning > result.err.index("Running in ")
    assert ": not the same software; compared steps 0 to 1" in result.out
    assert "Changed since: torch." in result.out


def test_a_dirty_or_other_commit_is_said_and_recorded(rltune, run, trial):
    origin = read_json(trial.provenance)
    write_json_atomic(trial.provenance, origin | {"commit": "f" * 40})
    result = rltune("rerun", "0.01@0", "--verify", "--steps", "1")
    assert result.code == 0  # the Python files are the same
    assert "WARNING: commit: ffffffffffff then, " in result.err
    (folder,) = run.reruns.glob("*/*")
    assert read_json(folder / "origin.json")["software"][0].startswith("commit: ffffffffffff then")
    assert "changed since: commit" in rows(run)[-1].notes


def test_continue_starts_from_the_gates_choice(rltune, run, trial):
    best = trial.read_done().best_step
    result = rltune("continue", "0.01@0", "--checkpoint", "3", "--set", "budget.steps=2")
    assert result.code == 0, result.err
    (child,) = children(run)
    assert child.trial_id.startswith("kl_loss_coef=0.01-s0-from3-")
    card, origin = read_json(trial.model_card), read_json(child.origin)
    started = read_json(child.provenance)["weights_sha256"]
    assert origin["weights_sha256"] == started
    if best == 3:
        assert started == card["checkpoint"]["weights_sha256"]
    metrics = read_metrics(child.metrics).rows
    # It begins as good as its parent was there, on the same tasks with the same luck,
    parent = read_metrics(trial.metrics).rows[3]
    assert metrics[0]["heldout/reward_mean"] == parent["heldout/reward_mean"]
    # and the KL ties it to its own start, not to its parent's: 0 before the first update.
    assert metrics[1]["actor/kl_loss"] == pytest.approx(0, abs=1e-9)
    row = rows(run)[-1]
    assert (row.exp_id, row.parent_exp) == (child.trial_id, trial.trial_id)
    assert "selected_on: heldout" in row.notes
    before = files(child.path)
    again = rltune("continue", "0.01@0", "--checkpoint", "3", "--set", "budget.steps=2")
    assert "ended earlier; nothing was run" in again.out
    assert files(child.path) == before
    assert child.trial_id in (run.path / "KNOWLEDGE.md").read_text()


@pytest.mark.slow
def test_children_of_children_and_of_other_parents_are_other_trials(rltune, run, trial):
    one = ("--set", "budget.steps=2")  # in the first, the critic alone learns
    for step in ("2", "3"):
        assert rltune("continue", "0.01@0", "--checkpoint", step, *one).code == 0
    first, third = children(run)
    assert first.trial_id[-10:] != third.trial_id[-10:]
    assert rltune("continue", first.trial_id, "--checkpoint", "2", *one).code == 0
    grandchild = TrialDir(run.children / rows(run)[-1].trial_id)
    assert read_json(grandchild.origin)["parent"] == first.trial_id
    assert rows(run)[-1].parent_exp == first.trial_id
    shutil.rmtree(first.checkpoints)  # a child has a name of its own for what it starts from
    assert rltune("rerun", grandchild.trial_id, "--verify").code == 0
    assert rltune("test", grandchild.trial_id).code == 0


def test_other_keys_and_seeds_are_new_trials(rltune, run, trial):
    result = rltune("rerun", "0.01@0", "--seed", "7", "--set", "budget.steps=1", "--json")
    assert result.code == 0, result.err
    (child,) = children(run)
    assert json.loads(result.out)["origin"]["changes"] == {"budget.steps": [3, 1], "seed": [0, 7]}
    assert child.read_spec().seed == 7
    assert not child.start.exists()
    assert rows(run)[-1].hypothesis.endswith("seed 7, budget.steps 3 -> 1, seed 0 -> 7")


def test_a_child_that_is_measured_otherwise_is_not_compared(rltune, run):
    sets = ("--set", "budget.steps=1", "--set", "gate.tasks=3")
    assert rltune("rerun", "0.01@0", *sets).code == 0
    assert rows(run)[-1].status is RowStatus.DISQUALIFIED
    assert len(list(run.path.glob("tasks-*.json"))) == 1  # its own tasks, beside its parent's


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("0.01@0", "--set", "optim.lrr=1"), "Did you mean 'optim.lr'"),
        (("0.01@0", "--seed", "0"), "nothing differs from the trial itself."),
        (("0.01@0", "--seed", "1"), "this trial belongs to the sweep itself and has not finished."),
        (("0.01@0", "--seed", "3", "--verify"), "there is nothing to compare."),
        (("0.01@0", "--from-checkpoint", "77"), "checkpoint '77' is missing."),
        (("kl_loss_coef=0.01",), "'kl_loss_coef=0.01' names 2 trials: small-0/kl_loss_coef=0.01"),
        (("0.0@0",), "the trial has not started, so it has no records."),
        (("nothing",), "'nothing' is not a trial here. Choose one of kl_loss_coef=0.0@0, "),
    ],
)
def test_what_cannot_be_run_is_refused(rltune, run, arguments, said):
    result = rltune("rerun", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert not run.reruns.exists()
    assert not run.children.exists()


def test_an_edited_config_is_refused(rltune, run, trial):
    config = yaml.safe_load(trial.config.read_text())
    config["optim"]["lr"] = 1.0
    trial.config.write_text(yaml.safe_dump(config))
    result = rltune("rerun", "0.01@0", "--verify")
    assert result.code == 2
    assert "config.yaml: is not the config that the trial ran with" in result.err


def test_other_weights_to_start_from_are_refused(rltune, run, trial):
    one = ("continue", "0.01@0", "--checkpoint", "3", "--set", "budget.steps=1")
    assert rltune(*one).code == 0
    (child,) = children(run)
    shutil.rmtree(child.checkpoints)
    child.done.unlink()
    child.start.unlink()
    shutil.copy2(trial.checkpoint(0) / "policy.safetensors", child.start)
    write_json_atomic(child.origin, read_json(child.origin))
    result = rltune("rerun", child.trial_id, "--verify")
    assert result.code == 1
    assert "holds other weights" in result.out


@pytest.mark.slow
def test_an_interrupted_child_goes_on(rltune, run, trial, monkeypatch):
    from rltune.runner import single

    real = single.run_trial
    monkeypatch.setattr(single, "run_trial", lambda p: real(replace(p, stop_after=1)))
    one = ("continue", "0.01@0", "--checkpoint", "3", "--set", "budget.steps=2")
    stopped = rltune(*one)
    assert (stopped.code, stopped.err.splitlines()[-1]) == (
        3,
        "interrupted; the same command goes on.",
    )
    monkeypatch.setattr(single, "run_trial", real)
    assert rltune(*one).code == 0
    (child,) = children(run)
    ends = [(row.exp_id, row.status) for row in rows(run)[1:]]
    assert ends[0] == (child.trial_id, RowStatus.PREEMPTED)
    assert ends[1][0] == f"{child.trial_id}.a2"
    assert [row["step"] for row in read_metrics(child.metrics).rows] == [0, 1, 2]
    assert rltune("rerun", child.trial_id, "--verify").code == 0


def test_a_trial_in_another_run_folder_is_found(rltune, run, trial, tmp_path):
    other = tmp_path / "runs" / "other-0"
    shutil.copytree(run.path, other, symlinks=True)
    for path in (other / "trials").iterdir():
        shutil.rmtree(path)
    write_json_atomic(other / "plan.json", {"trials": []})
    result = rltune("rerun", trial.trial_id, "--verify", "--steps", "1")
    assert result.code == 0, result.err
    assert compare_trials(trial, trial, last=3).difference is None
