"""A sweep whose trials train on two ranks, by the command line: what ends it leaves no rank."""

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fault_injection"))

from ranks import RANKS, ranks_of
from sandbox import Sandbox

pytestmark = pytest.mark.slow

SHORT = {**RANKS, "budget.steps": 10, "gate.every": 10}


def trains(sandbox):
    return lambda: sandbox.second_trains() and len(ranks_of(sandbox)) == 1


def test_a_killed_rank_ends_its_trial_by_name_and_a_killed_driver_ends_the_ranks(tmp_path):
    sandbox = Sandbox(tmp_path, SHORT)
    sweep = sandbox.launch()
    sandbox.wait(sweep, trains(sandbox))
    os.kill(ranks_of(sandbox)[0], signal.SIGKILL)
    ended = sandbox.end(sweep)
    assert ended.code == 1
    assert ended.says("rank 1 of 2", "ended by signal 9 in")
    assert sandbox.orphans() == 0

    sweep = sandbox.launch()
    sandbox.wait(sweep, lambda: len(ranks_of(sandbox)) == 1)
    sweep.kill()
    sandbox.end(sweep)
    assert sandbox.orphans() == 0

    again = sandbox.run_sweep()
    assert again.code == 0, again.text
    assert sandbox.record_problems(most_ends=1) == []
