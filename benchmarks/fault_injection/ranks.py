"""Faults of a trial that several processes train: `resources.ranks` above 1."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from finding import Finding, steps_again
from processes import kill_driver
from sandbox import Sandbox, processes_of, steps_of

RANKS = {"resources.ranks": 2}
_MODULE = b"rltune.trainer.ranks.child"


def ranks_of(sandbox: Sandbox) -> list[int]:
    """Return the processes that train with those of the trials."""
    commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in processes_of(sandbox.name)}
    return [pid for pid, path in commands.items() if path.exists() and _MODULE in path.read_bytes()]


def kill_rank(sandbox: Sandbox) -> Finding:
    """SIGKILL of a rank that is not the trial's own process."""
    return _fallen(
        sandbox,
        lambda: os.kill(ranks_of(sandbox)[0], signal.SIGKILL),
        "rank 1 of 2",
        "ended by signal 9",
        outcome="its trial ends with an error that names the rank and the step; exit 1",
    )


def stop_rank(sandbox: Sandbox) -> Finding:
    """SIGSTOP of a rank: it stands still, and its sockets stay open."""
    return _fallen(
        sandbox,
        lambda: os.kill(ranks_of(sandbox)[0], signal.SIGSTOP),
        "rank 1 of 2",
        "gave no sign of life for 60 s",
        outcome="ended after 60 s without a sign of life; its trial ends as above; exit 1",
    )


def _fallen(sandbox: Sandbox, fell: Callable[[], None], *said: str, outcome: str) -> Finding:
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    fell()
    ended = sandbox.end(process)
    left, before = sandbox.orphans(), steps_of(sandbox.trials[1])
    again = sandbox.run_sweep()
    return Finding(
        outcome,
        steps_again(before, sandbox),
        {
            "exit code 1": ended.code == 1,
            "names the rank": ended.says(*said),
            "no orphans": left == 0,
            "the same command ends it": again.code == 0,
        },
        is_equal=False,  # to a sweep on one rank; to one on two by tests/trainer
    )


def kill_first_rank(sandbox: Sandbox) -> Finding:
    """SIGKILL of the trial's process, with a rank that waits for it."""
    return _fallen(
        sandbox,
        lambda: os.kill(sandbox.worker(sandbox.trials[1]), signal.SIGKILL),
        "its process died",
        outcome="recorded as a crash with its signal; its ranks end with it; exit 1",
    )


def kill_driver_of_ranks(sandbox: Sandbox) -> Finding:
    """SIGKILL of the driver of such a trial."""
    finding = kill_driver(sandbox)
    return Finding(finding.outcome, finding.lost, finding.checks, is_equal=False)
