"""Faults of processes: signals, kills, a second driver."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from finding import Finding, Skipped, steps_again
from sandbox import Sandbox, steps_of


def signalled(number: int) -> Callable[[Sandbox], Finding]:
    def fault(sandbox: Sandbox) -> Finding:
        process = sandbox.launch()
        sandbox.wait(process, sandbox.second_trains)
        process.send_signal(number)
        ended = sandbox.end(process)
        before, left = steps_of(sandbox.trials[1]), sandbox.orphans()
        status = sandbox.run_command("status", str(sandbox.run.path))
        again = sandbox.run_sweep()
        return Finding(
            "stops after the running step, with a checkpoint; exit 3",
            steps_again(before, sandbox),
            {
                "exit code 3": ended.code == 3,
                "says that the same command goes on": ended.says("the same command goes on"),
                "status says interrupted": status.says("interrupted"),
                "no orphans": left == 0,
                "the same command ends it": again.code == 0,
            },
        )

    return fault


def kill_driver(sandbox: Sandbox) -> Finding:
    """SIGKILL of the driver."""
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    process.send_signal(signal.SIGKILL)
    sandbox.end(process)
    left, before = sandbox.orphans(), steps_of(sandbox.trials[1])
    status = sandbox.run_command("status", str(sandbox.run.path))
    again = sandbox.run_sweep()
    return Finding(
        "its workers end with it; the next launch records the attempt as preempted",
        steps_again(before, sandbox),
        {
            "no orphans": left == 0,
            "status says interrupted": status.says("interrupted"),
            "the same command ends it": again.code == 0,
        },
    )


def kill_worker(sandbox: Sandbox) -> Finding:
    """SIGKILL of a trial's process."""
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    os.kill(sandbox.worker(sandbox.trials[1]), signal.SIGKILL)
    ended = sandbox.end(process)
    before = steps_of(sandbox.trials[1])
    again = sandbox.run_sweep()
    return Finding(
        "that trial is recorded as a crash with its signal, the others go on; exit 1",
        steps_again(before, sandbox),
        {
            "exit code 1": ended.code == 1,
            "says how it died": ended.says("its process died"),
            "the same command ends it": again.code == 0,
        },
    )


def kill_ray(sandbox: Sandbox) -> Finding:
    """SIGKILL of Ray's own daemon."""
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    listed = subprocess.run(["pgrep", "-x", "raylet"], capture_output=True, text=True, check=False)
    ours = [int(pid) for pid in listed.stdout.split() if _is_of(sandbox, int(pid))]
    if not ours:
        raise Skipped("no raylet of this sandbox was found")
    for pid in ours:
        os.kill(pid, signal.SIGKILL)
    ended = sandbox.end(process)
    left, before = sandbox.orphans(), steps_of(sandbox.trials[1])
    again = sandbox.run_sweep()
    return Finding(
        "the driver ends with an error that names Ray; the same command goes on",
        steps_again(before, sandbox),
        {
            "exit code 1": ended.code == 1,
            "no traceback": "Traceback" not in ended.text,
            "no orphans": left == 0,
            "the same command ends it": again.code == 0,
        },
    )


def _is_of(sandbox: Sandbox, pid: int) -> bool:
    try:
        return sandbox.name.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def out_of_memory(sandbox: Sandbox) -> Finding:
    """Ray's memory monitor kills the trial, as it does when the machine has no memory left."""
    sandbox.environment |= {
        "RAY_memory_usage_threshold": "0.001",
        "RAY_memory_monitor_refresh_ms": "200",
    }
    ended = sandbox.run_sweep()
    sandbox.environment.clear()
    again = sandbox.run_sweep()
    return Finding(
        "the trials are recorded as crashes whose reason says memory; exit 1",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "says memory": ended.says("memory"),
            "the same command ends it": again.code == 0,
        },
    )


def two_drivers(sandbox: Sandbox) -> Finding:
    """A second driver on the same folder."""
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    second = sandbox.run_sweep()
    first = sandbox.end(process)
    return Finding(
        "the second is refused and told the first one's process; exit 2",
        checks={
            "the second is refused": second.code == 2,
            "names the process": second.says(f"process {process.pid}"),
            "the first ends well": first.code == 0,
        },
    )
