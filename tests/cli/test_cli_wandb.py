"""`rltune sync` and `rltune dashboard` on a real sweep folder, without an account."""

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from trained_folder import trained_folder

from rltune.store.jsonl import read_metrics
from rltune.store.origin import Origin, write_origin
from rltune.store.rundir import TrialDir
from rltune.track.dashboard import GROUP_BY, PANELS
from rltune.track.sync import is_synced, sessions

ROOT = Path(__file__).parents[2]
KEY = "local" + "0" * 40


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WANDB_API_KEY", raising=False)
        return trained_folder(tmp_path_factory.mktemp("wandb"), which=0, wandb="offline")


@pytest.fixture
def run(finished, tmp_path, tmp_path_factory, monkeypatch):
    """A copy of the run folder, on a machine without an account."""
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    left = tmp_path_factory.mktemp("left")  # by an upload that is killed
    monkeypatch.setenv("TMPDIR", str(left))
    shutil.copytree(finished[0].path, tmp_path / "runs" / "small-0", symlinks=True)
    return tmp_path / "runs" / "small-0"


def outcomes(result):
    return {one["trial_id"]: one["outcome"] for one in json.loads(result.out)["trials"]}


def test_a_dry_run_says_what_would_be_uploaded_and_needs_no_key(rltune, run, finished):
    trial = finished[1].trial_id
    result = rltune("sync", str(run), "--dry-run", "--json")
    assert result.code == 0
    found = outcomes(result)
    assert found.pop(trial) == "to upload"
    assert set(found.values()) == {"no run"}  # three trials were not started


def test_a_session_goes_up_once(rltune, run, finished):
    (session,) = sessions(run / "trials" / finished[1].trial_id)
    assert not is_synced(session)
    (session / "run-x.wandb.synced").touch()  # as `wandb sync` leaves it
    assert is_synced(session)
    assert outcomes(rltune("sync", str(run), "--dry-run", "--json"))[finished[1].trial_id] == (
        "was uploaded"
    )


def test_children_go_up_with_the_sweep(rltune, run, finished):
    spec = finished[1]
    child = TrialDir(run / "children" / "child-0")
    shutil.copytree(run / "trials" / spec.trial_id, child.path, symlinks=True)
    child.write_spec(replace(spec, trial_id="child-0"))
    origin = Origin(kind="child", parent=spec.trial_id, folder=f"trials/{spec.trial_id}")
    write_origin(child, origin)
    found = outcomes(rltune("sync", str(run), "--dry-run", "--json"))
    assert found["child-0"] == found[spec.trial_id] == "to upload"


def cut_off(session):
    """Leave a session as a kill does: the header of a file that holds no record yet."""
    (session / "rltune-whole").unlink()
    (file,) = session.glob("*.wandb")
    file.write_bytes(file.read_bytes()[:7])


@pytest.mark.slow
def test_a_killed_trial_gets_a_session_with_its_whole_history(rltune, run, finished):
    trial = TrialDir(run / "trials" / finished[1].trial_id)
    (empty,) = sessions(trial.path)
    cut_off(empty)
    asked = ("sync", str(run), "--json")
    (one,) = (o for o in json.loads(rltune(*asked, "--dry-run").out)["trials"] if o["sessions"])
    assert (one["outcome"], one["sessions"]) == ("to upload", 1)
    assert sessions(trial.path) == (empty,)  # a dry run writes nothing
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server_url = f"http://127.0.0.1:{server.getsockname()[1]}"
        env = os.environ | {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server_url}
        env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}"}
        command = [sys.executable, "-m", "rltune", *asked, "--timeout", "1"]
        for _ in range(2):  # the second time there is nothing left to write
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            assert done.returncode == 1, (done.stdout, done.stderr)
            (one,) = (o for o in json.loads(done.stdout)["trials"] if o["outcome"] != "no run")
            assert one["sessions"] == 1  # the empty one holds nothing to upload
            assert one["reason"].startswith("no answer within 1 s")
    _, written = sessions(trial.path)
    told = inspect(written)
    logged = [r["history"]["item"] for r in told if r["type"] == "history"]
    rows = read_metrics(trial.metrics).rows
    assert [(item["step"], item["heldout/success_rate"]) for item in logged] == [
        (row["step"], row["heldout/success_rate"]) for row in rows
    ]
    (summary,) = inspect(written, "--summary")
    assert summary["state"] == "finished"
    assert summary["summary"]["best_step"] == trial.read_done().best_step
    assert summary["config"]["rltune"]["trial_id"] == trial.trial_id


@pytest.mark.parametrize("year", ["2000", "2999"])  # by the clock of the machine that was killed
def test_an_empty_session_beside_a_whole_one_is_left_out(rltune, run, finished, year):
    trial = run / "trials" / finished[1].trial_id
    (whole,) = sessions(trial)
    killed = whole.with_name(f"offline-run-{year}0101_000000-x")
    shutil.copytree(whole, killed)
    cut_off(killed)
    (one,) = (
        o for o in json.loads(rltune("sync", str(run), "--dry-run", "--json").out)["trials"]
        if o["sessions"]
    )  # fmt: skip
    assert (one["outcome"], one["sessions"]) == ("to upload", 1)


def inspect(session, *flags):
    """Return the records of a session, as W&B's own reader gives them."""
    leet = [Path(sys.executable).with_name("wandb"), "leet", "inspect", *flags, "--json", session]
    said = subprocess.run(leet, check=True, capture_output=True, text=True).stdout
    return [json.loads(said)] if flags else [json.loads(line) for line in said.splitlines()]


def test_without_a_key_the_next_action_is_said(rltune, run):
    result = rltune("sync", str(run))
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: WANDB_API_KEY: no W&B key is set for https://api.wandb.ai. Run `wandb login`, or "
        "set WANDB_API_KEY, then run the same command again.\n"
    )


def test_a_server_that_is_down_is_said_at_once(rltune, run, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
    result = rltune("sync", str(run))
    assert result.code == 2
    assert f"WANDB_BASE_URL: http://127.0.0.1:{port} cannot be reached" in result.err
    assert KEY not in result.err


@pytest.mark.slow
def test_a_server_that_never_answers_ends_at_the_limit(rltune, run, finished, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        result = rltune("sync", str(run), "--timeout", "5")
    assert result.code == 1
    assert f"{finished[1].trial_id}: failed (1 session): no answer within 5 s" in result.out
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["runs"]  # no logs of `wandb`


def test_the_dashboard_is_written_where_it_cannot_be_saved(rltune, run):
    result = rltune("dashboard", str(run))
    assert result.code == 0
    assert "Not saved online. Run `wandb login`, `rltune sync`, then this again." in result.out
    workspace = json.loads((run / "wandb" / "workspace.json").read_text())
    assert workspace["project"] == "small"
    spec = workspace["spec"]["section"]
    sections = spec["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections] == list(PANELS)
    drawn = [panel["config"] for section in sections for panel in section["panels"]]
    assert {name for panel in drawn for name in panel["metrics"]} >= {
        "heldout/success_rate", "rollout/in_group_reward_std", "actor/entropy", "actor/kl_loss",
        "rollout/filter_kept_ratio", "response_length/mean",
    }  # fmt: skip
    section, name = GROUP_BY.split(".")
    assert {panel["groupBy"] for panel in drawn} == {f"{section}.value.{name}"}
    assert {(panel["xAxis"], panel["groupAgg"], panel["groupArea"]) for panel in drawn} == {
        ("step", "mean", "minmax")
    }
    (runs,) = spec["runSets"]
    assert [item["value"] for item in runs["filters"]["filters"]] == ["small"]
    report = (run / "wandb" / "report.json").read_text()
    assert "Held-out success" in report


def test_saving_without_a_key_is_refused(rltune, run):
    result = rltune("dashboard", str(run), "--save")
    assert result.code == 2
    assert result.err.startswith("error: WANDB_API_KEY: no W&B key is set")
    assert not (run / "wandb").exists()


def test_every_metric_of_the_dashboard_is_one_that_trials_log(finished):
    run, spec = finished
    row = json.loads(run.trial(spec.trial_id).metrics.read_text().splitlines()[1])
    drawn = {name for wanted in PANELS.values() for names in wanted.values() for name in names}
    assert drawn - set(row) <= {"actor/kl_loss"}  # this trial ties itself to nothing
