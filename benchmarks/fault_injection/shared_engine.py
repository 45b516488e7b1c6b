"""Faults of a rollout engine that the trials of a sweep share."""

import os
import signal
from pathlib import Path

from finding import Finding, steps_again
from processes import kill_driver
from sandbox import Sandbox, processes_of, steps_of

SHARED = {
    "policy.lora.rank": 4,
    "policy.lora.alpha": 8.0,
    "resources.engine": "shared_by_sweep",
}
GONE = "the rollout engine that the trials of this sweep share is gone"
_MODULE = b"rltune.rollout.shared.server"


def engines_of(sandbox: Sandbox) -> list[int]:
    """Return the processes of shared engines."""
    commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in processes_of(sandbox.name)}
    return [pid for pid, path in commands.items() if path.exists() and _MODULE in path.read_bytes()]


def kill_shared_engine(sandbox: Sandbox) -> Finding:
    """SIGKILL of the engine while a trial trains with it."""
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    os.kill(engines_of(sandbox)[0], signal.SIGKILL)
    ended = sandbox.end(process)
    left, before = sandbox.orphans(), steps_of(sandbox.trials[1])
    again = sandbox.run_sweep()
    return Finding(
        "its trials end with an error that says so; the same command starts another engine; exit 1",
        steps_again(before, sandbox),
        {
            "exit code 1": ended.code == 1,
            "names the engine": ended.says(GONE),
            "no orphans": left == 0,
            "the same command ends it": again.code == 0,
        },
        is_equal=False,  # to a sweep without adapters; to one alone by tests/runner
    )


def kill_driver_of_shared_engine(sandbox: Sandbox) -> Finding:
    """SIGKILL of the driver of such trials."""
    finding = kill_driver(sandbox)
    return Finding(finding.outcome, finding.lost, finding.checks, is_equal=False)
