"""Cost of orchestration: Ray's start, and the time around each trial's own work.

    python benchmarks/orchestration.py [--seeds 1]

Runs sweeps/kl.yaml with trials of one step, one at a time, and compares the wall time of the launch
with what the trials report of themselves.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from rltune.runner.sweep import SweepRequest, run_sweep
from rltune.spec.load import load_sweep

OVERRIDES = ("budget.steps=1", "gate.tasks=16", "env.train_tasks=64")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="Six trials each.")
    args = parser.parse_args()
    seeds = list(range(args.seeds))
    loaded = load_sweep(Path("sweeps/kl.yaml"), overrides=OVERRIDES, seeds=seeds)
    with tempfile.TemporaryDirectory() as runs:
        request = SweepRequest(loaded, Path(runs), 1, None, None, tuple(sys.argv))
        began = time.monotonic()
        outcome = run_sweep(request, on_start=lambda *_: None, on_tick=lambda: None, tick_s=0.2)
        wall = time.monotonic() - began
        again = time.monotonic()
        run_sweep(request, on_start=lambda *_: None, on_tick=lambda: None)
        again = time.monotonic() - again
        rows = [json.loads(line) for line in outcome.run.ledger.read_text().splitlines()]
        trials = [outcome.run.trial(spec.trial_id) for spec in outcome.specs]
        work = sum(trial.read_done().total_s for trial in trials)
    assert all(row["event"] in ("planned", "started", "done") for row in rows)
    n = len(trials)
    print(f"{n} trials one after another: {wall:.1f} s wall, {work:.1f} s of it training and gates")
    print(f"around the trials: {wall - work:.1f} s, {(wall - work) / n:.1f} s per trial")
    print(f"the same sweep again, all finished: {again:.2f} s")


if __name__ == "__main__":
    main()
