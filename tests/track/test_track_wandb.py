import json
import math
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rltune.track.base import Artifact, Histogram, Table
from rltune.track.inherited import forget_caller
from rltune.track.make import make_trackers, wandb_id, wandb_run
from rltune.track.wandb_tracker import WandbTracker, _wandb_artifact, wandb_run_id
from rltune.types import TrialSpec, TrialStatus

SPEC = TrialSpec(
    trial_id="loss.kl=0.01-s1-0123456789",
    sweep="kl",
    axis_key="loss.kl_loss_coef",
    condition="loss.kl_loss_coef=0.01",
    axis_value=0.01,
    is_control=True,
    seed=1,
    config={"seed": 1, "env": {"kind": "sokoban"}},
    config_hash="ff" * 32,
)
LEET = Path(sys.executable).with_name("wandb")


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    """W&B as on a fresh machine: no key, no settings, nothing outside the test's folder."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(home))
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(home / name.lower()))


def test_run_ids_are_legal_stable_and_different():
    assert wandb_run_id(SPEC.trial_id) == SPEC.trial_id
    odd = [f"a{c}b" for c in ":;,#?/' "] + ["x" * 200, "x" * 201]
    made = [wandb_run_id(name) for name in odd]
    assert len(set(made)) == len(odd)
    assert made == [wandb_run_id(name) for name in odd]
    assert all(len(name) <= 100 and not set(":;,#?/' ") & set(name) for name in made)


def test_the_project_is_named_after_the_sweep_unless_given(tmp_path):
    projects = [
        wandb_run(SPEC, tmp_path, mode="offline", project=name).project for name in (None, "mine")
    ]
    assert projects == [SPEC.sweep, "mine"]


def test_a_trial_without_w_and_b_has_no_run_id():
    odd = replace(SPEC, trial_id="a:b", config={"tracking": {"wandb": "offline"}})
    assert wandb_id(odd) == wandb_run_id("a:b") != "a:b"
    assert wandb_id(replace(odd, config={"tracking": {"wandb": "disabled"}})) == ""
    assert wandb_id(SPEC) == ""  # a config that does not say


def test_disabled_means_that_wandb_is_not_even_imported(tmp_path):
    code = (
        "import sys; from rltune.track.make import make_trackers; from tests_spec import SPEC\n"
        "make_trackers(SPEC, None, append=print, wandb='disabled', project=None, warn=print)\n"
        "assert 'wandb' not in sys.modules\n"
    )
    spec = f"from rltune.types import TrialSpec\nSPEC = {SPEC!r}\n"
    (tmp_path / "tests_spec.py").write_text(spec)
    (tmp_path / "main.py").write_text(code)
    subprocess.run([sys.executable, str(tmp_path / "main.py")], check=True)


def inspect(folder, *flags):
    (run,) = (folder / "wandb").glob("offline-run-*")
    done = subprocess.run(
        [LEET, "leet", "inspect", *flags, "--json", run], check=True, capture_output=True, text=True
    )
    return done.stdout


CALLER = {
    "WANDB_RUN_ID": "caller",
    "WANDB_RESUME": "must",
    "WANDB_RUN_GROUP": "group",
    "WANDB_NAME": "name",
    "WANDB_SWEEP_ID": "sweep",
    "WANDB_TAGS": "tag",
    "WANDB_NOTES": "notes",
    "WANDB_JOB_TYPE": "job",
    "WANDB_SERVICE": "3-1-unix-/tmp/no-such-socket",
    "WANDB_LAUNCH": "1",
    "WANDB_X_PRIMARY": "false",
}


@pytest.mark.slow
def test_a_stopped_trial_is_preempted_and_no_failure(tmp_path, no_credentials):
    tracker = make_trackers(
        SPEC, tmp_path, append=[].append, wandb="offline", project=None, warn=print
    )
    tracker.close(TrialStatus.INTERRUPTED)
    assert "preempting" in {json.loads(line)["type"] for line in inspect(tmp_path).splitlines()}


@pytest.mark.slow
def test_nothing_of_the_callers_run_is_taken_over(tmp_path, no_credentials, monkeypatch):
    """W&B prefers WANDB_RUN_ID to the id that it is given once WANDB_SWEEP_ID is set, too."""
    for name, value in {**CALLER, "WANDB_DIR": str(tmp_path / "elsewhere")}.items():
        monkeypatch.setenv(name, value)
    warnings = []
    tracker = make_trackers(
        SPEC, tmp_path, append=[].append, wandb="offline", project=None, warn=warnings.append
    )
    tracker.log(0, {"heldout/success_rate": 0.25})
    tracker.close(TrialStatus.DONE)
    assert warnings == []
    summary = json.loads(inspect(tmp_path, "--summary"))
    assert summary["run_id"] == summary["name"] == SPEC.trial_id
    assert "tag" not in summary["tags"]
    records = [json.loads(line) for line in inspect(tmp_path).splitlines()]
    (run,) = (r["run"] for r in records if r["type"] == "run")
    assert (run["run_group"], run["job_type"]) == ("kl", "train")
    assert not run.get("sweep_id")
    assert not run.get("notes")
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_person_sets_on_purpose_stays():
    mine = {"WANDB_API_KEY": "k", "WANDB_MODE": "offline", "WANDB_PROJECT": "p", "HOME": "/root"}
    mine |= {"WANDB_ENTITY": "e", "WANDB_BASE_URL": "https://w", "WANDB_CACHE_DIR": "/c"}
    environ = {**mine, **CALLER}
    assert set(forget_caller(environ)) == set(CALLER)
    assert environ == mine


@pytest.mark.slow
def test_an_offline_run_holds_what_was_logged(tmp_path, no_credentials):
    warnings, rows = [], []
    tracker = make_trackers(
        SPEC, tmp_path, append=rows.append, wandb="offline", project="a/b", warn=warnings.append
    )
    tracker.log(0, {"heldout/success_rate": 0.25, "rollout/task_hash": "ff"})
    tracker.log(10, {"heldout/success_rate": 0.5, "actor/pg_loss": math.nan, "odd": True})
    tracker.summary({"best_step": 10})
    tracker.close(TrialStatus.DIVERGED)
    assert warnings == []
    assert rows[0] == {"step": 0, "heldout/success_rate": 0.25, "rollout/task_hash": "ff"}

    summary = json.loads(inspect(tmp_path, "--summary"))
    assert summary["run_id"] == summary["name"] == SPEC.trial_id
    assert (summary["state"], summary["exit_code"], summary["project"]) == ("failed", 1, "a-b")
    assert summary["tags"] == ["axis:loss.kl_loss_coef", SPEC.condition, "seed:1", "control"]
    assert summary["config"]["env"] == {"kind": "sokoban"}
    assert summary["config"]["rltune"]["config_hash"] == SPEC.config_hash
    assert summary["summary"]["trial/status"] == "diverged"
    assert summary["summary"]["best_step"] == 10

    records = [json.loads(line) for line in inspect(tmp_path).splitlines()]
    (run,) = (r["run"] for r in records if r["type"] == "run")
    assert (run["run_group"], run["job_type"]) == ("kl", "train")
    axes = [r["metric"] for r in records if r["type"] == "metric"]
    assert any(a.get("glob_name") == "*" and a["step_metric"] == "step" for a in axes)
    history = [r["history"]["item"] for r in records if r["type"] == "history"]
    plain = [{k: v for k, v in item.items() if not k.startswith("_")} for item in history]
    assert plain == [
        {"step": 0, "heldout/success_rate": 0.25},
        {"step": 10, "heldout/success_rate": 0.5, "actor/pg_loss": "NaN"},
    ]


@pytest.mark.parametrize("has_key", [pytest.param(False, marks=pytest.mark.slow), True])
def test_online_without_a_server_writes_offline_runs_and_says_so_once(
    tmp_path, no_credentials, monkeypatch, has_key
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"  # closed by the time it is used
    monkeypatch.setenv("WANDB_BASE_URL", url)
    if has_key:
        monkeypatch.setenv("WANDB_API_KEY", "local" + "0" * 40)
    warnings, rows = [], []
    tracker = make_trackers(
        SPEC, tmp_path, append=rows.append, wandb="online", project=None, warn=warnings.append
    )
    tracker.log(0, {"x": 1.0})
    tracker.summary({"x": 1.0})
    tracker.close(TrialStatus.DONE)
    assert rows == [{"step": 0, "x": 1.0}]
    (warning,) = warnings
    why = f"WANDB_BASE_URL: {url} cannot be reached" if has_key else "WANDB_API_KEY: no W&B key"
    assert warning.startswith(f"W&B cannot be used online. {why}")
    assert warning.endswith("Offline runs are written instead; `rltune sync` uploads them later.")
    assert [item["x"] for item in history(tmp_path)] == [1]


@pytest.mark.slow
def test_a_server_that_never_answers_holds_no_trial_up(tmp_path, no_credentials, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "local" + "0" * 40)
    warnings = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        run = wandb_run(SPEC, tmp_path, mode="online", project=None)
        run = replace(run, init_timeout_s=3.0, finish_timeout_s=3.0)
        tracker = WandbTracker(run, warnings.append)
        tracker.log(0, {"x": 1.0})
        tracker.close(TrialStatus.DONE)
    (warning,) = warnings
    assert warning.startswith("W&B cannot be used online. CommError")
    assert [item["x"] for item in history(tmp_path)] == [1]


class BrokenRun:
    """A W&B run whose service has died."""

    def __init__(self):
        self.calls = []
        self.summary = {}

    def log(self, values):
        self.calls.append("log")
        raise ConnectionResetError("service died")

    def finish(self, exit_code):
        self.calls.append("finish")
        raise ConnectionResetError("service died")


def test_a_service_that_dies_is_said_once_left_alone_and_still_finished(tmp_path, monkeypatch):
    broken, warnings = BrokenRun(), []
    monkeypatch.setattr("rltune.track.wandb_tracker._init", lambda run, run_id: broken)
    run = wandb_run(SPEC, tmp_path, mode="offline", project=None)
    tracker = WandbTracker(run, warnings.append)
    for step in range(3):
        tracker.log(step, {"x": 1.0})
    tracker.summary({"x": 1.0})
    tracker.close(TrialStatus.DONE)
    tracker.close(TrialStatus.DONE)
    assert broken.calls == ["log", "finish"]
    assert len(warnings) == 1
    assert warnings[0].startswith("W&B could not log: ConnectionResetError: service died.")


def history(folder):
    records = [json.loads(line) for line in inspect(folder).splitlines()]
    return [r["history"]["item"] for r in records if r["type"] == "history"]


def offline(folder, warn=pytest.fail):
    return WandbTracker(wandb_run(SPEC, folder, mode="offline", project=None), warn)


def test_a_resumed_session_holds_every_step_of_the_metrics_file(tmp_path, no_credentials):
    tracker = offline(tmp_path)
    rows = [
        {"step": 0, "heldout/success_rate": 0.5, "time": 1.0},
        {"step": 1, "actor/pg_loss": math.nan, "rollout/task_hash": "ff"},
    ]
    tracker.resume(rows)
    tracker.log(2, {"actor/pg_loss": 0.25})
    tracker.close(TrialStatus.DONE)
    plain = [{k: v for k, v in i.items() if k[0] != "_"} for i in history(tmp_path)]
    assert plain == [
        {"step": 0, "heldout/success_rate": 0.5, "time": 1},
        {"step": 1, "actor/pg_loss": "NaN"},
        {"step": 2, "actor/pg_loss": 0.25},
    ]


@pytest.mark.slow
def test_tables_histograms_and_artifacts_lie_in_the_run(tmp_path, no_credentials):
    weights = tmp_path / "policy.safetensors"
    weights.write_bytes(b"w" * 64)
    tracker = offline(tmp_path)
    assert tracker.shows_media
    model = Artifact(
        name="policy-ff", kind="model", files={"policy.safetensors": weights},
        metadata={"step": 3}, aliases=("selected",),
    )  # fmt: skip
    tracker.use(replace(model, name="policy-00", aliases=()))
    board = Table(("task_id", "text"), (("a", "_P_\nXO_"),))
    tracker.media(
        3, {"heldout/episodes": board, "actor/entropy": Histogram((3, 1), (0.0, 1.0, 2.0))}
    )
    tracker.make(model)
    tracker.close(TrialStatus.DONE)

    records = [json.loads(line) for line in inspect(tmp_path).splitlines()]
    found = {r["artifact"]["name"]: r["artifact"] for r in records if r["type"] == "artifact"}
    assert {"policy-00", "policy-ff"} <= set(found)
    assert set(found["policy-ff"]["aliases"]) == {"selected", "latest"}
    summary = json.loads(inspect(tmp_path, "--summary"))
    assert summary["config"]["input_model"] == "policy-00"
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    (file,) = run.rglob("*.table.json")
    assert json.loads(file.read_text())["data"] == [["a", "_P_\nXO_"]]
    (row,) = history(tmp_path)
    assert (row["step"], row["actor/entropy.values"]) == (3, [3, 1])


def test_a_large_file_is_named_and_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr("rltune.track.wandb_tracker._UPLOAD_BYTES", 10)
    for name, size in (("small", 10), ("large", 11)):
        (tmp_path / name).write_bytes(b"w" * size)
    files = {name: tmp_path / name for name in ("small", "large")}
    made = _wandb_artifact(Artifact(name="policy-ff", kind="model", files=files))
    entries = made.manifest.entries
    assert entries["large"].ref == (tmp_path / "large").as_uri()
    assert (entries["small"].ref, entries["small"].size) == (None, 10)
