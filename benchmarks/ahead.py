"""Time of training steps that sample the next step's rollouts beside them, and of those that wait.

    python benchmarks/ahead.py [--steps 4] [--repeats 3] [--sweep sweeps/quickstart.yaml]

The control of a sweep with its engine in a process of its own, one thread each, on two cores: with
`rollout.ahead` 0 and 1 in turn. Each row is a ratio of one repeat, first steps left out. With
ahead 0 trainer and engine take turns; with 1 they work at a time, and learn from other samples.
"""

import argparse
import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from jobs import job_of

from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.trainer.engines import make_engine
from rltune.trainer.loop import train

LEARNING = ("score", "credit", "update", "sync")


def config_of(sweep: Path, steps: int, ahead: int) -> TrialConfig:
    """Return the control of a sweep as a trial of some steps without gates between them."""
    spec = expand(load_sweep(sweep, seeds=[0]))[0]
    plain = {name: dict(value) if isinstance(value, dict) else value
             for name, value in spec.config.items()}  # fmt: skip
    plain["rollout"] |= {"ahead": ahead}
    plain["resources"] |= {"engine": "own"}
    plain["rollout_correction"] = {"kind": "tis"}
    plain["budget"] |= {"steps": steps}
    plain["gate"] |= {"every": 1000, "tasks": 8}
    return TrialConfig.model_validate(plain)


def steps_of(config: TrialConfig) -> list[dict[str, Any]]:
    """Run a trial; return the metrics of its steps but the first and the last.

    The first samples for two steps, and the last for none.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = TrialDir(Path(folder) / "trial").create()
        job = job_of(config, trial, "0" * 64)
        engine = make_engine(config, job.policy)
        try:
            train(replace(job, engine=engine))
        finally:
            engine.close()
        return list(read_metrics(trial.metrics).rows[2:-1])


def mean(rows: list[dict[str, Any]], *names: str) -> float:
    """Return the mean seconds of some parts of a step."""
    return statistics.fmean(sum(row.get(name, 0.0) for name in names) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4, help="That are counted.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sweep", type=Path, default=Path("sweeps/quickstart.yaml"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    learning = tuple(f"timing_s/{part}" for part in LEARNING)
    ratios = []
    for _ in range(args.repeats):
        turns, beside = (steps_of(config_of(args.sweep, args.steps + 2, ahead)) for ahead in (0, 1))
        in_turn = mean(turns, "timing_s/collect", *learning)
        at_once = mean(beside, "timing_s/collect", *learning)
        ratios.append(in_turn / at_once)
        print(
            f"a step in turn {in_turn:.2f} s: sampling {mean(turns, 'timing_s/collect'):.2f}, "
            f"learning {mean(turns, *learning):.2f}; at a time {at_once:.2f} s: learning "
            f"{mean(beside, *learning):.2f}, beside it sampling {mean(beside, 'perf/ahead_s'):.2f}"
            f", then waited {mean(beside, 'timing_s/collect'):.2f}: {ratios[-1]:.2f} x"
        )
    print(f"median {statistics.median(ratios):.2f} x ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main()
