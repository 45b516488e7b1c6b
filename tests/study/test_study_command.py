"""`rltune study`, `check` and `next` over a study whose first sweep was made by hand."""

import json
from pathlib import Path

import pytest

from rltune.lineage.table import LineageStore
from rltune.types import RowStatus


@pytest.fixture
def launched(monkeypatch):
    """What the study would launch: the requests; each launch changes nothing, and fails."""
    requests = []

    def launch(request, console):
        requests.append(request)
        return 1

    monkeypatch.setattr("rltune.cli.study.run", launch)
    return requests


DIFF = "loss.kl_loss_coef: 0.0 -> 0.1\n  loss.use_kl_loss: False -> True\n"


def test_a_dry_run_shows_the_queue_and_what_is_promoted(project, rltune):
    code, out, err = rltune("study", "studies/nights.yaml", "--dry-run")
    assert (code, err) == (0, "")
    assert "waits for kl" in out
    project.finish()
    _, out, _ = rltune("study", "studies/nights.yaml", "--dry-run")
    assert f"entropy: kl_loss_coef=0.1 of {project.kl.run.path.name} is promoted: above" in out
    assert DIFF in out
    assert "Used: " in out
    assert "24,000 tokens" in out


@pytest.mark.parametrize("option", ["--dry-run", "--json"])
def test_looking_writes_nothing_and_decides_nothing(project, rltune, option):
    project.finish()
    before = sorted(project.runs.rglob("*"))
    assert rltune("study", "studies/nights.yaml", option)[0] == 0
    assert sorted(project.runs.rglob("*")) == before


def test_check_shows_the_diff_and_leaves_the_runs_as_they_are(project, rltune):
    project.finish()
    before = sorted(project.runs.rglob("*"))
    code, out, err = rltune("check", "studies/nights.yaml")
    assert (code, err) == (0, "")
    assert DIFF in out
    assert "Axis loss.entropy_coeff" in out
    assert sorted(project.runs.rglob("*")) == before


def test_data_of_a_study(project, rltune):
    project.finish()
    code, out, _ = rltune("study", "studies/nights.yaml", "--json")
    said = json.loads(out)
    assert code == 0
    kl, entropy = said["sweeps"]
    assert (kl["is_finished"], kl["trials"]) == (True, {"done": 6})
    assert entropy["promotion"]["condition"] == "kl_loss_coef=0.1"
    assert entropy["diff"] == {
        "loss.kl_loss_coef": [0.0, 0.1],
        "loss.use_kl_loss": [False, True],
    }
    assert said["used"]["tokens"] == 24000


def test_a_finished_sweep_is_not_run_again_and_the_next_one_is(project, rltune, launched):
    project.finish()
    code, out, _ = rltune("study", "studies/nights.yaml")
    (request,) = launched
    assert request.loaded.spec.name == "entropy"
    assert request.loaded.path.name == "entropy.yaml"
    looked = json.loads(rltune("study", "studies/nights.yaml", "--json")[1])
    assert Path(looked["sweeps"][1]["run"]).name == request.loaded.run_name  # written elsewhere
    assert request.lineage == project.runs / "study-nights" / "results.tsv"
    assert (request.max_trials, request.deadline, request.spend) == (None, None, None)
    assert code == 1
    assert "Left after trials that did not finish: entropy." in out


def test_what_needs_a_sweep_that_failed_is_not_started(project, rltune, launched):
    code, _, _ = rltune("study", "studies/nights.yaml")
    assert [request.loaded.spec.name for request in launched] == ["kl"]
    assert code == 1


@pytest.mark.parametrize(
    "arguments",
    [("study", "studies/nights.yaml", "--max-trials", "1"), ("next", "studies/nights.yaml")],
)
def test_one_trial_at_a_time(project, rltune, launched, arguments):
    rltune(*arguments)
    (request,) = launched
    assert (request.max_trials, request.max_concurrent) == (1, 1)


def test_a_budget_that_is_used_up_starts_nothing(project, rltune, launched):
    project.finish()
    project.write(budget="{tokens: 24000}")
    code, out, _ = rltune("study", "studies/nights.yaml")
    assert (code, launched) == (0, [])
    assert "No further trial starts: its trials generated 24,000 of 24,000 tokens." in out
    project.write(budget="{tokens: 24001, time: 20h}")
    rltune("study", "studies/nights.yaml")
    (request,) = launched
    assert request.max_trials == 1
    assert request.deadline is not None


def test_trials_that_do_not_fit_the_budget_are_no_failures(project, rltune, monkeypatch):
    """A launch that starts nothing because of its limits ends with 0."""
    monkeypatch.setattr("rltune.cli.study.run", lambda request, console: 0)
    project.write(budget="{time: 1s}")
    code, out, _ = rltune("study", "studies/nights.yaml")
    assert code == 0
    assert out.endswith("No trial fits into what is left of the budget: kl.\n")
    assert "did not finish" not in out


def test_what_a_killed_driver_left_out_is_recorded_before_the_next_sweep(project, rltune, launched):
    """It died after the last trial of kl had ended, and nothing of kl is left to launch."""
    project.finish()
    rltune("study", "studies/nights.yaml")
    own = LineageStore.open(project.kl.run.results).read().rows
    shared = project.runs / "study-nights" / "results.tsv"
    assert {row.trial_id for row in own} == {spec.trial_id for spec in project.kl.specs}
    assert all(row.parent_exp or row.status is RowStatus.BASELINE for row in own)
    shared.unlink()  # it died between the two tables
    before = project.kl.run.results.read_bytes()
    rltune("study", "studies/nights.yaml")
    names = [row.exp_id for row in LineageStore.open(shared).read().rows]
    assert names == [f"{project.kl.run.path.name}/{row.exp_id}" for row in own]
    assert project.kl.run.results.read_bytes() == before


def test_a_finished_study_says_so(project, rltune, launched):
    project.write(
        "  - name: entropy\n    file: ../sweeps/entropy.yaml\n    control: best kept of kl\n", ""
    )
    project.finish()
    code, out, _ = rltune("study", "studies/nights.yaml")
    assert (code, launched) == (0, [])
    assert out.endswith("The study is finished: 1 sweep.\n")


def test_a_study_runs_once_at_a_time(project, rltune, launched, impatient):
    from rltune.store.lock import take_driver_lock
    from rltune.store.rundir import RunDir

    own = RunDir(project.runs / "study-nights").create()
    with take_driver_lock(own.lock, argv=("other",)):
        code, _, err = rltune("study", "studies/nights.yaml")
    assert (code, launched) == (2, [])
    assert "already driven by" in err


@pytest.mark.parametrize("command", ["next", "check"])
def test_options_that_a_study_sets_are_refused(project, rltune, command):
    code, _, err = rltune(command, "studies/nights.yaml", "--seeds", "0")
    assert code == 2
    assert err.startswith("error: --seeds: a")


@pytest.mark.slow
def test_a_study_keeps_its_files_and_is_bundled_from_its_folder(project, rltune, launched):
    project.finish()
    assert rltune("study", "studies/nights.yaml")[0] == 1
    kept = project.runs / "study-nights"
    assert (kept / "study.yaml").read_text() == project.study.read_text()
    assert (kept / "study.sweeps/kl/configs/protocols/figure3.yaml").is_file()
    code, out, err = rltune("bundle", "runs/study-nights", "--out", "nights.zip")
    assert (code, err) == (0, "")
    assert "kl_loss_coef=0.1 ends above the control" in out.replace("`", "").replace("**", "")
    assert "Not finished: entropy has not begun." in out
    assert "wrote nights.zip: " in out
    code, out, err = rltune("verify", "nights.zip")
    assert (code, err) == (0, "")
    assert "promotions, by the verdicts of their sweeps" in out
    assert out.endswith("nights.zip holds.\n")


@pytest.mark.parametrize("text", ["[]", '{"entropy": 1}', '{"entropy": {"run": "x"}}'])
def test_a_bundle_names_decisions_that_cannot_be_read(project, rltune, text):
    record = project.runs / "study-nights" / "study.json"
    record.parent.mkdir(parents=True)
    record.write_text(text)
    code, out, err = rltune("bundle", "studies/nights.yaml", "--out", "nights.zip")
    assert (code, out) == (2, "")
    assert "study.json: is no record of promotions. Restore it from a copy" in err


def test_a_study_file_is_bundled_and_the_data_says_where_it_stands(project, rltune):
    project.finish()
    code, out, _ = rltune("bundle", "studies/nights.yaml", "--out", "nights.zip", "--json")
    told = json.loads(out)
    assert code == 0
    assert [one["is_finished"] for one in told["standing"]["sweeps"]] == [True, False]
    assert list(told["answers"]) == [project.kl.run.path.name]
    assert not (project.runs / "study-nights").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweeps/kl.yaml",), "sweeps/kl.yaml: is a file, and no study file. Give the run folder"),
        (("runs",), "runs: this is not a run folder; it has no sweep.yaml."),
        (("nowhere",), "nowhere: there is no such folder."),
        (("studies/nights.yaml", "--metric", "a"), "--metric: is of the page of one sweep."),
        (("studies/nights.yaml",), "runs/study-nights: no sweep of this study has begun."),
    ],
)
def test_what_is_no_bundle_is_refused(project, rltune, arguments, message):
    if arguments == ("studies/nights.yaml",):
        project.kl.run.plan.unlink()
    code, out, err = rltune("bundle", *arguments, "--out", "a.zip")
    assert (code, out) == (2, "")
    assert message in err
    assert not (project.root / "a.zip").exists()
