"""The faults that need no second run to compare with, all on one real sweep; the whole matrix is
benchmarks/fault_injection, whose sandbox this uses.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fault_injection"))

from files import flip, half
from finding import interrupt
from sandbox import Sandbox, steps_of

pytestmark = pytest.mark.slow


def test_a_sweep_whose_files_were_damaged_ends_all_the_same(tmp_path):
    sandbox = Sandbox(tmp_path)
    assert interrupt(sandbox).code == 3
    first, second = sandbox.trials
    before = steps_of(second)
    half(first.done)
    for path in (second.spec, second.config, second.provenance):
        half(path)
    flip(max(second.checkpoints.glob("step-*")) / "policy.safetensors")
    for path in [
        path for path in sandbox.run.tune.rglob("*") if path.is_file() and path.stat().st_size
    ]:
        path.write_bytes(b"\x00garbage")
    for path in (sandbox.run.results, sandbox.run.ledger, second.metrics):
        with path.open("a") as file:
            file.write("half a li")
    status = sandbox.run_command("status", str(sandbox.run.path))
    assert status.code == 1
    assert status.says("its DONE cannot be read; run the same command to finish it")

    again = sandbox.run_sweep()
    assert again.code == 0, again.text
    assert sandbox.record_problems(most_ends=2) == []
    log = second.log.read_text()
    assert "It is now torn-step-" in log
    resumed = int(log.rpartition("resumed from step ")[2].split()[0])
    assert 0 < resumed < before  # from the checkpoint before the one with a flipped bit
    assert sandbox.orphans() == 0
    assert sandbox.run_sweep().says("Nothing was left to run")
