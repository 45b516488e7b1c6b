"""A sweep whose trials share an engine, by the command line: what they measure, and its end."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from trained_folder import train_one

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fault_injection"))

from sandbox import Sandbox, steps_of
from shared_engine import GONE, SHARED, engines_of

from rltune.store.digest import metrics_digest

pytestmark = pytest.mark.slow

SHORT = {
    **SHARED,
    "optim.lr": 1e-3,
    "budget.steps": 8,
    "checkpoint.every": 2,
    "gate.every": 4,
}


class Together(Sandbox):
    """Both trials at a time."""

    @property
    def sweep_arguments(self):
        return (*super().sweep_arguments[:-1], "2")

    def both_train(self):
        """Whether both have made steps and left a checkpoint."""
        if not any(self.runs.glob("faults-*/plan.json")):
            return False
        return all(any(trial.checkpoints.glob("step-*2")) for trial in self.trials)


def test_its_end_fails_its_trials_by_name_and_they_measure_what_each_would_alone(tmp_path):
    sandbox = Together(tmp_path / "shared", SHORT)
    sweep = sandbox.launch()
    sandbox.wait(sweep, sandbox.both_train)
    (engine,) = engines_of(sandbox)
    os.kill(engine, signal.SIGKILL)
    ended = sandbox.end(sweep)
    assert ended.code == 1
    assert ended.says(GONE)
    assert sandbox.orphans() == 0
    assert all(GONE in trial.read_failed().reason for trial in sandbox.trials)
    assert all(0 < steps_of(trial) < SHORT["budget.steps"] for trial in sandbox.trials)

    sweep = sandbox.launch()
    sandbox.wait(sweep, lambda: engines_of(sandbox))
    sweep.kill()
    sandbox.end(sweep)
    assert sandbox.orphans() == 0

    again = sandbox.run_sweep()
    assert again.code == 0, again.text
    assert sandbox.record_problems(most_ends=1) == []
    assert json.loads(sandbox.run.audit.read_text())["verdict"] == "passed"

    text = sandbox.sweep.read_text().replace("shared_by_sweep", "shared")
    for which, trial in enumerate(sandbox.trials):
        folder = tmp_path / str(which)
        folder.mkdir()
        run, spec = train_one(folder, text, which=which)
        assert spec.trial_id == trial.trial_id
        assert metrics_digest(run.trial(spec.trial_id).metrics) == metrics_digest(trial.metrics)
