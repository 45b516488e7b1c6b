"""Faults of processes: signals, kills, a second driver."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from finding import Finding, Skipped, steps_again
from lab import Lab, steps_of


def signalled(number: int) -> Callable[[Lab], Finding]:
    def fault(lab: Lab) -> Finding:
        process = lab.launch()
        lab.wait(process, lab.second_trains)
        process.send_signal(number)
        ended = lab.end(process)
        before, left = steps_of(lab.trials[1]), lab.orphans()
        status = lab.do("status", str(lab.run.path))
        again = lab.sweep_on()
        return Finding(
            "stops after the running step, with a checkpoint; exit 3",
            steps_again(before, lab),
            {
                "exit code 3": ended.code == 3,
                "says that the same command goes on": ended.says("the same command goes on"),
                "status says interrupted": status.says("interrupted"),
                "no orphans": left == 0,
                "the same command ends it": again.code == 0,
            },
        )

    return fault


def kill_driver(lab: Lab) -> Finding:
    """SIGKILL of the driver."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    process.send_signal(signal.SIGKILL)
    lab.end(process)
    left, before = lab.orphans(), steps_of(lab.trials[1])
    status = lab.do("status", str(lab.run.path))
    again = lab.sweep_on()
    return Finding(
        "its workers end with it; the next launch books the attempt as preempted",
        steps_again(before, lab),
        {
            "no orphans": left == 0,
            "status says interrupted": status.says("interrupted"),
            "the same command ends it": again.code == 0,
        },
    )


def kill_worker(lab: Lab) -> Finding:
    """SIGKILL of a trial's process."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    os.kill(lab.worker(lab.trials[1]), signal.SIGKILL)
    ended = lab.end(process)
    before = steps_of(lab.trials[1])
    again = lab.sweep_on()
    return Finding(
        "that trial is booked as a crash with its signal, the others go on; exit 1",
        steps_again(before, lab),
        {
            "exit code 1": ended.code == 1,
            "says how it died": ended.says("its process died"),
            "the same command ends it": again.code == 0,
        },
    )


def kill_ray(lab: Lab) -> Finding:
    """SIGKILL of Ray's own daemon."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    found = subprocess.run(["pgrep", "-x", "raylet"], capture_output=True, text=True, check=False)
    ours = [int(pid) for pid in found.stdout.split() if _is_of(lab, int(pid))]
    if not ours:
        raise Skipped("no raylet of the lab's was found")
    for pid in ours:
        os.kill(pid, signal.SIGKILL)
    ended = lab.end(process)
    left, before = lab.orphans(), steps_of(lab.trials[1])
    again = lab.sweep_on()
    return Finding(
        "the driver ends with an error that names Ray; the same command goes on",
        steps_again(before, lab),
        {
            "exit code 1": ended.code == 1,
            "no traceback": "Traceback" not in ended.text,
            "no orphans": left == 0,
            "the same command ends it": again.code == 0,
        },
    )


def _is_of(lab: Lab, pid: int) -> bool:
    try:
        return lab.name.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def out_of_memory(lab: Lab) -> Finding:
    """Ray's memory monitor kills the trial, as it does when the machine has no memory left."""
    lab.environment |= {
        "RAY_memory_usage_threshold": "0.001",
        "RAY_memory_monitor_refresh_ms": "200",
    }
    ended = lab.sweep_on()
    lab.environment.clear()
    again = lab.sweep_on()
    return Finding(
        "the trials are booked as crashes whose reason says memory; exit 1",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "says memory": ended.says("memory"),
            "the same command ends it": again.code == 0,
        },
    )


def two_drivers(lab: Lab) -> Finding:
    """A second driver on the same folder."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    second = lab.sweep_on()
    first = lab.end(process)
    return Finding(
        "the second is refused and told the first one's process; exit 2",
        checks={
            "the second is refused": second.code == 2,
            "names the process": second.says(f"process {process.pid}"),
            "the first ends well": first.code == 0,
        },
    )
