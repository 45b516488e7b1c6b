"""The outcome of a fault, and the clean stop that many faults begin with."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox import STEPS, Ended, Sandbox


@dataclass(frozen=True)
class Finding:
    """The outcome of a fault.

    Attributes:
        outcome: What a person sees, in a few words.
        lost: Work that was lost, in a few words.
        checks: What must be true -> whether it is.
        most_ends: How often a trial may have ended.
        is_whole: Whether the same command must now have ended the sweep.
        is_equal: Whether every number must be that of an undisturbed sweep.

    """

    outcome: str
    lost: str = "none"
    checks: Mapping[str, bool] = field(default_factory=dict)
    most_ends: int = 1
    is_whole: bool = True
    is_equal: bool = True


class Skipped(Exception):
    """This machine cannot make the fault."""


def interrupt(sandbox: Sandbox) -> Ended:
    """Stop the sweep cleanly while its second trial trains."""
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    os.killpg(process.pid, signal.SIGINT)
    return sandbox.end(process)


def steps_again(before: int, sandbox: Sandbox) -> str:
    log = sandbox.trials[1].log.read_text()
    resumed = int(log.rpartition("resumed from step ")[2].split()[0]) if "resumed" in log else 0
    again = before - resumed
    return f"{again} of {STEPS} steps made again" if again else "none"
