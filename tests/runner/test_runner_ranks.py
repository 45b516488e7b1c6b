"""A sweep whose trials train on two ranks each, by the command line: as on one, up to rounding."""

import json
import subprocess
import sys

import pytest
from patience import HANG_S
from small_sweep import small_sweep
from trained_folder import train_one

pytestmark = pytest.mark.slow

STATED = 1e-5  # of the larger of a metric and 1; as in docs/engines.md
CLOCKS = ("timing_s/", "perf/", "time")


TEXT = small_sweep(policy="tiny", steps=3, gate_every=3, values="[0.0, 0.01]")


def swept(folder):
    """Run the sweep on two ranks; return its trials' rows of metrics."""
    sweep = folder / "small.yaml"
    sweep.write_text(TEXT)
    command = ["-c", "from rltune.cli import main; main()", "sweep", str(sweep)]
    sets = ["--set", "resources.ranks=2"]
    done = subprocess.run(
        [sys.executable, *command, "--runs-dir", str(folder / "runs"), *sets],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (audit,) = folder.glob("runs/*/audit.json")
    assert json.loads(audit.read_text())["verdict"] == "passed"
    return metrics_in(folder.glob("runs/*/trials/*/metrics.jsonl"))


def trained(folder):
    """Run the same trials in this process on one rank, without Ray; return their rows."""
    paths = []
    for which in range(2):
        (folder / str(which)).mkdir(parents=True)
        run, spec = train_one(folder / str(which), TEXT, which=which)
        paths.append(run.trial(spec.trial_id).metrics)
    return metrics_in(paths)


def metrics_in(paths):
    """Return the rows of metrics by trial, clocks left out."""
    return {
        path.parent.name.rpartition("-")[0]: [
            {name: value for name, value in json.loads(line).items() if not name.startswith(CLOCKS)}
            for line in path.read_text().splitlines()
        ]
        for path in paths
    }


def test_two_ranks_measure_what_one_does(tmp_path):
    one, two = trained(tmp_path / "one"), swept(tmp_path)
    assert one.keys() == two.keys()
    for trial, rows in one.items():
        assert len(rows) == len(two[trial]) == 4
        for row, shared in zip(rows, two[trial], strict=True):
            numbers = {name for name, value in row.items() if isinstance(value, float)}
            assert row.keys() == shared.keys()
            for name in row.keys() - numbers:  # digests of tasks and of what was sampled
                assert row[name] == shared[name], name
            for name in numbers:
                limit = STATED * max(1.0, abs(row[name]))
                assert shared[name] == pytest.approx(row[name], rel=0, abs=limit, nan_ok=True), name
