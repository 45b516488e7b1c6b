"""`rltune serve-tinker` as a person starts it: a process, a line with its address, a signal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from patience import HANG_S

pytest.importorskip("tinker", reason="the Tinker SDK is an extra")

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from rltune.cli import main; main()", "serve-tinker"]


def start(folder, *options):
    return subprocess.Popen(
        [*COMMAND, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_it_serves_the_shipped_policies_until_a_signal_and_ends_with_0(tmp_path):
    with start(tmp_path, "--port", "0") as process:
        try:
            url = process.stdout.readline().strip()
            assert httpx.get(f"{url}/api/v1/healthz").json()["status"] == "ok"
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "")
    assert err.startswith("Serving tiny/arithmetic, tiny/frozen_lake, ")
    assert err.endswith("tiny/sokoban over the Tinker protocol. Stop with Ctrl-C.\n")


@pytest.mark.slow
def test_a_model_that_is_no_folder_is_refused(tmp_path):
    with start(tmp_path, "--model", "nowhere") as process:
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 2
    assert "--model: 'nowhere' is not a folder. Give a saved model's folder." in err
