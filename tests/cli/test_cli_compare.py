"""`rltune compare` on run folders."""

import json

import pytest
from run_folders import CONTROL, TREATED, finished_sweep

from rltune.store.origin import Origin, write_origin
from rltune.store.rundir import TrialDir


@pytest.fixture
def run(tmp_path):
    return finished_sweep(tmp_path).run.path


def test_two_conditions_of_the_newest_folder(rltune, run):
    result = rltune("compare", TREATED, CONTROL)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:4] == [
        "heldout/success_rate at the last gate",
        "  kl_loss_coef=0.1  0.2667  95 % [0.0183, 0.5151]  seeds 0, 1, 2",
        "  kl_loss_coef=0.0  0.7000  95 % [0.4516, 0.9484]  seeds 0, 1, 2",
        "  difference       -0.4333  95 % [-0.6817, -0.1849]",
    ]
    assert "kl_loss_coef=0.1 ends below kl_loss_coef=0.0 by 0.433 over 3 paired seeds" in " ".join(
        lines
    )


@pytest.mark.parametrize(
    "names", [("0.1@0", "0.0@0"), ("kl_loss_coef=0.1@0", "kl_loss_coef=0.0@0")]
)
def test_two_trials_as_json(rltune, run, names):
    result = rltune("compare", *names, str(run), "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert (found["unit"], found["n"], found["hits"]) == ("tasks", 10, [2, 6])
    assert found["verdict"] == "not separable"  # 4 of 10 alone: p = 2 / 2^4
    assert found["p"] == 0.125


@pytest.mark.parametrize(
    "names",
    [
        ("0.10", "0"),
        ("1e-1", "0.00"),
        (".1", "-0"),
        ("kl_loss_coef=1e-1", "kl_loss_coef=0"),
        ("loss.kl_loss_coef=0.1", "loss.kl_loss_coef=0e0"),
    ],
)
def test_a_value_may_be_spelled_otherwise(rltune, run, names):
    result = rltune("compare", *names, "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert (found["a"]["label"], found["b"]["label"]) == (TREATED, CONTROL)


@pytest.mark.parametrize("names", [(".10@00", "-0@0"), ("kl_loss_coef=1e-1@0", "0@0")])
def test_a_trial_may_be_spelled_otherwise(rltune, run, names):
    result = rltune("compare", *names, "--json")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)["unit"] == "tasks"


def test_a_folder_named_like_a_value_is_no_trial(rltune, run, tmp_path, monkeypatch):
    (tmp_path / "cwd" / "0").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "cwd")
    assert rltune("compare", "0.1", "0", str(run)).code == 0


@pytest.mark.parametrize("name", ["other=0.1", "0.1@9", "0.1@", "@0", "0.1 0", "", "[", "'0.1'"])
def test_what_is_another_value_is_named(rltune, run, name):
    result = rltune("compare", name, "0.0")
    assert (result.code, result.out) == (2, "")
    said = "Choose one of kl_loss_coef=0.0, kl_loss_coef=0.1, or a trial of one, such as"
    assert result.err.endswith(f" is not a trial here. {said} kl_loss_coef=0.0@0.\n")


def test_a_misspelt_condition_is_suggested_and_a_missing_folder_named(rltune, run):
    near = rltune("compare", "kl_loss_coeff=0.1", "0.0")
    assert near.err.endswith("Did you mean 'kl_loss_coef=0.1'?\n")
    lost = rltune("compare", "runs/gone:0.1", "0.0")
    assert "'runs/gone:0.1' is not a trial here. runs/gone is no folder. Choose one" in lost.err
    same = rltune("compare", "0.1", "0.1")
    assert "a condition cannot be compared with itself. Name two conditions." in same.err


def test_two_folders(rltune, run, tmp_path):
    other = finished_sweep(tmp_path / "other").run.path
    result = rltune("compare", f"{run}:0.1", f"{other}:0.0", "--json")
    assert json.loads(result.out)["verdict"] == "below"


def test_it_leaves_the_folder_as_it_was(rltune, run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    rltune("compare", TREATED, CONTROL)
    rltune("compare", "0.1@0", "0.0@0")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_what_is_nothing_here_is_named(rltune, run):
    result = rltune("compare", "0.7", "0.0")
    assert result.code == 2
    assert "'0.7' is not a trial here. Choose one of kl_loss_coef=0.0, " in result.err


def test_a_repetition_is_refused(rltune, run):
    original = next((run / "trials").glob("*0.1-s0*"))
    again = TrialDir(run / "reruns" / "0001" / original.name)
    again.path.mkdir(parents=True)
    write_origin(
        again, Origin(kind="rerun", parent=original.name, folder=f"trials/{original.name}")
    )
    result = rltune("compare", str(again.path), "0.0@0")
    assert result.code == 2
    assert "is a repetition of kl_loss_coef=0.1-s0" in result.err
