"""Faults of custom code: a score that raises, hangs, or cannot be interrupted."""

import os
import signal
from collections.abc import Callable

from finding import Finding
from sandbox import CHECKPOINT_EVERY, Sandbox

_RAISES = """
import itertools

calls = itertools.count(1)

def score(attempt):
    if next(calls) % 20 == 0:
        raise ConnectionError("the verifier is down")
    return float(attempt.success)
"""

_HANGS = """
import threading
from pathlib import Path

def score(attempt):
    if Path({flag!r}).exists():
        threading.Event().wait()
    return float(attempt.success)

score.time_limit_s = {limit_s}
"""


def raising_score(sandbox: Sandbox) -> Finding:
    """A custom score that raises one time in twenty."""
    _write(sandbox, _RAISES)
    ended = sandbox.run_sweep()
    log = sandbox.trials[1].log.read_text()
    return Finding(
        "each is a fault of its episode, counted and masked; the trials go on",
        "the episodes with a fault",
        {
            "ends well": ended.code == 0,
            "the log counts them with their line": "had a fault" in log
            and "it raised ConnectionError: the verifier is down" in log
            and "scores_of_mine.py:" in log,
        },
        is_equal=False,
    )


def hanging_score(sandbox: Sandbox) -> Finding:
    """A custom score that stops returning while the second trial trains."""
    flag = sandbox.folder / "hangs"
    _write(sandbox, _HANGS.format(flag=str(flag), limit_s=1.0))
    process = sandbox.launch()
    sandbox.wait(process, sandbox.second_trains)
    flag.touch()
    ended = sandbox.end(process)
    flag.unlink()
    again = sandbox.run_sweep()
    return Finding(
        "each call ends at its limit; after 3 steps in a row that lost over a quarter of their "
        "episodes the trial fails by name, and the same command goes on",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "named": ended.says("too_many_faults", "it did not return within 1 s"),
            "no traceback": "Traceback" not in ended.text,
            "goes on": again.code == 0,
        },
        most_ends=2,
        is_equal=False,
    )


def interrupted_score(sandbox: Sandbox) -> Finding:
    """SIGINT while a custom score hangs, which has practically no time limit."""
    flag = sandbox.folder / "hangs"
    _write(sandbox, _HANGS.format(flag=str(flag), limit_s=1e6))
    process = sandbox.launch()
    sandbox.wait(process, lambda: sandbox.second_trains(steps=CHECKPOINT_EVERY + 2))
    flag.touch()
    sandbox.wait(process, _is_told(sandbox))
    os.killpg(process.pid, signal.SIGINT)
    ended = sandbox.end(process)
    flag.unlink()
    again = sandbox.run_sweep()
    return Finding(
        "says what it waits for; the call is given up; exit 3",
        "what followed the last checkpoint",
        {
            "exit code 3": ended.code == 3,
            "says what it waits for": ended.says("stopping: each running trial"),
            "goes on": again.code == 0,
        },
        most_ends=2,
        is_equal=False,
    )


def _is_told(sandbox: Sandbox) -> Callable[[], bool]:
    return lambda: "has not returned for 5 s" in sandbox.trials[1].log.read_text()


def _write(sandbox: Sandbox, code: str) -> None:
    (sandbox.folder / "scores_of_mine.py").write_text(code)
    sandbox.write_sweep({**sandbox.changes, "reward": "scores_of_mine:score"})
