"""A sweep through the local server, both killed in the middle, and the same command again."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import HANG_S

ROOT = Path(__file__).parents[2]
RLTUNE = [sys.executable, "-c", "from rltune.cli import main; main()"]
SMALL = (
    *("budget.steps=6", "gate.every=3", "gate.tasks=8", "gate.test_tasks=4"),
    *("checkpoint.every=1", "rollout.groups=2", "rollout.group_size=4"),
    *("optim.mini_batch_size=8", "env.train_tasks=16", "trainer.timeout_s=40"),
    "tracking.wandb=disabled",
)


def environment(**more):
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}", "OMP_NUM_THREADS": "1", **more}


@contextmanager
def served(folder, port=0):
    """Serve; give the process and the port; kill it at the end."""
    command = [*RLTUNE, "serve-tinker", "--port", str(port), "--checkpoints", str(folder)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process, int(process.stdout.readline().strip().rpartition(":")[2])
        finally:
            process.kill()


def sweep(folder, port):
    """Start the sweep; its output goes to a file."""
    keys = [word for key in SMALL for word in ("--set", key)]
    command = [*RLTUNE, "sweep", str(ROOT / "sweeps" / "tinker_kl.yaml"), "--seeds", "0", *keys]
    command += ["--runs-dir", str(folder / "runs"), "--max-concurrent", "3"]
    with (folder / "out").open("w") as out:
        return subprocess.Popen(
            command,
            env=environment(
                TINKER_BASE_URL=f"http://127.0.0.1:{port}", TINKER_API_KEY="tml-secret-of-this-test"
            ),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def export_one(folder, port):
    """Take one of the trained adapters away from the service."""
    trial = sorted((folder / "runs").glob("*/trials/*"))[0]
    command = [*RLTUNE, "model", str(trial), "--out", str(folder / "out-model"), "--json"]
    where = {"TINKER_BASE_URL": f"http://127.0.0.1:{port}", "TINKER_API_KEY": "tml-local"}
    done = subprocess.run(command, env=environment(**where), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["kind"], facts["trial_id"]) == ("adapter", trial.name)
    assert (folder / "out-model" / "adapter_model.safetensors").exists()


def until_all_have(folder, step, process):
    """Wait until every trial has a checkpoint of a step; none may end before."""
    name = f"trials/*/checkpoints/step-{step:06d}/state.json"
    while len(list((folder / "runs").glob(f"*/{name}"))) < 3:
        assert process.poll() is None, (folder / "out").read_text()
        time.sleep(0.1)


def ended(process, folder):
    code = process.wait(timeout=HANG_S)
    return code, (folder / "out").read_text()


@pytest.mark.slow
def test_server_and_client_may_be_killed_and_the_same_command_goes_on(tmp_path):
    states = tmp_path / "states"
    with served(states) as (server, port):
        process = sweep(tmp_path, port)
        until_all_have(tmp_path, 1, process)
        server.send_signal(signal.SIGKILL)
        code, text = ended(process, tmp_path)
    assert code == 1, text
    assert "RemoteError: the training service at 127.0.0.1" in text
    with served(states, port) as (_, port):
        process = sweep(tmp_path, port)
        until_all_have(tmp_path, 4, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        code, text = ended(sweep(tmp_path, port), tmp_path)
        assert code == 0, text
        assert "Audit passed (3 of 3 trials finished)." in text
        done, _ = ended(sweep(tmp_path, port), tmp_path)
        assert done == 0
        export_one(tmp_path, port)
    (run,) = (tmp_path / "runs").iterdir()
    for trial in (run / "trials").iterdir():
        rows = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(7))
        assert rows[-1]["budget/policy_updates"] == 6  # none twice, none lost
        provenance = json.loads((trial / "provenance.json").read_text())
        assert provenance["attempt"] >= 3
        assert provenance["remote"]["base_model"] == "tiny/sokoban"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"tml-secret-of-this-test" in path.read_bytes()]
