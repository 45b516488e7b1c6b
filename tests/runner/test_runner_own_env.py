"""The worked example, an env and a reward of one's own, from the file to an audited sweep on Ray.

It is copied to a folder that no interpreter knows, and driven from there: that is where its modules
must be found, by the check and by the trials' own processes.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from patience import HANG_S

from rltune.analysis.audit import AuditVerdict, audit_folder
from rltune.errors import RltuneError
from rltune.runner.sweep import SweepRequest, run_sweep
from rltune.spec.load import load_sweep
from rltune.store.files import read_json
from rltune.store.jsonl import read_jsonl
from rltune.store.run_folder import read_folder, read_records
from rltune.store.rundir import RunDir

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("drive_sweep.py")
SMALL = """
  policy: {{model: {policy}, dtype: float32}}
  resources: {{cpus: 1, gpus: 0, threads: 1}}
  tracking.wandb: offline
  budget.steps: 2
  rollout: {{engine: torch, groups: 2, group_size: 2, max_response_tokens: 20, max_context: 1200}}
  optim: {{mini_batch_size: 4, micro_batch_size: 4}}
"""


def settle(folder: Path, policy: Path) -> Path:
    """Copy the example under another package name, small enough for seconds."""
    package = folder / "coins"
    shutil.copytree(ROOT / "examples", package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / "my_env.yaml").read_text(encoding="utf-8").replace("examples.", "coins.")
    text = text.replace("\nhold:\n", f"\nhold:{SMALL.format(policy=policy)}", 1)
    text = text.replace("seeds: [0, 1, 2]", "seeds: [0]")
    path = folder / "coins.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def drive(sweep: Path, runs: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DRIVER), sweep.name, str(runs), "2"],
        cwd=sweep.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.fixture
def refusal(monkeypatch, models_are_fine):
    """Return a function that drives a sweep in this process and returns the error that ends it."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def drive_here(sweep: Path, runs: Path) -> str:
        monkeypatch.chdir(sweep.parent)
        try:
            request = SweepRequest(load_sweep(Path(sweep.name)), runs, 2, None, None, ("test",))
            run_sweep(request, on_start=lambda *_: None, on_tick=lambda: None)
        except RltuneError as error:
            return str(error)
        raise AssertionError("it was not refused")

    yield drive_here
    for name in [name for name in sys.modules if name.partition(".")[0] == "coins"]:
        del sys.modules[name]


def read_passed(done, runs):
    """Return the only run folder of an orderly driver, and its records; the audit has passed."""
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["statuses"].values()) == {"done"}
    (folder,) = runs.iterdir()
    run = RunDir(folder)
    read = read_records(read_folder(run))
    audit = audit_folder(read_folder(run), read)
    assert audit.verdict is AuditVerdict.PASSED, audit.report.errors
    return run, read


@pytest.mark.slow
def test_the_worked_example_runs_end_to_end(bytes_policy, tmp_path):
    sweep = settle(tmp_path / "work", bytes_policy)
    with tempfile.TemporaryDirectory() as short:  # a socket's path has 107 bytes
        done = drive(sweep, tmp_path / "runs", TMPDIR=short)
        assert list(Path(short).iterdir()) == []  # neither Ray nor W&B leaves anything
    run, read = read_passed(done, tmp_path / "runs")
    tasks = read_json(run.tasks())
    assert [len(tasks[part]) for part in ("train", "heldout", "test")] == [16, 12, 12]
    package = sweep.parent / "coins"
    inputs = {
        f"coins/{name}.py": hashlib.sha256((package / f"{name}.py").read_bytes()).hexdigest()
        for name in ("my_env", "my_reward")
    }
    for record in read.records:
        assert inputs.items() <= record.provenance["inputs"].items()
        assert record.provenance["base"] == str(sweep.parent)
        gate = record.metrics[0]
        assert {"heldout/score", "heldout/failure/lost"} <= set(gate)
        (*_, row) = read_jsonl(run.trial(record.spec.trial_id).episodes).rows
        assert set(row["auxiliary"]) == {"score"}


@pytest.mark.slow
def test_an_env_with_too_few_tasks_starts_nothing(small_policy, tmp_path, refusal):
    sweep = settle(tmp_path / "work", small_policy)
    text = sweep.read_text(encoding="utf-8")
    sweep.write_text(text.replace("train_tasks: 16", "train_tasks: 17"), encoding="utf-8")
    assert refusal(sweep, tmp_path / "runs").startswith(
        "env custom: its tasks cannot be frozen: the environment has 40 "
        "different tasks (10000 in a row had been drawn before), but heldout_tasks=12, "
        "test_tasks=12, train_tasks=17 need 41; "
    )
    assert not list((tmp_path / "runs").glob("*/trials/*"))


def test_an_env_that_raises_while_its_tasks_are_drawn_is_named_with_its_line(
    small_policy, tmp_path, refusal
):
    sweep = settle(tmp_path / "work", small_policy)
    module = sweep.parent / "coins" / "my_env.py"
    lines = module.read_text(encoding="utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("    def task")) + 1
    lines.insert(at, '        {}["gone"]')
    module.write_text("\n".join(lines), encoding="utf-8")
    assert refusal(sweep, tmp_path / "runs") == (
        "env coins.my_env:MyEnv: it raised KeyError: 'gone' "
        f"({module}:{at + 1}, in task). Repair it, and give the same command again."
    )
    assert not list((tmp_path / "runs").glob("*/trials/*"))


def test_a_broken_import_path_starts_nothing(small_policy, tmp_path, refusal):
    sweep = settle(tmp_path / "work", small_policy)
    text = sweep.read_text(encoding="utf-8")
    sweep.write_text(text.replace("my_reward:score", "my_rewards:score"), encoding="utf-8")
    assert refusal(sweep, tmp_path / "runs") == (
        "coins.yaml:24: hold.reward.terms: 'coins.my_rewards:score': there is no module "
        "'coins.my_rewards'; install its package, or add its folder to PYTHONPATH."
    )
    assert not (tmp_path / "runs").exists()
