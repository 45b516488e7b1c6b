"""Time of a laptop trial by parts: collect, score, update, eval; tokens per second; memory.

    python benchmarks/trial.py [--steps 10] [--seed 0] [--sweep sweeps/kl.yaml] [--set key=value]...

Runs one trial of the sweep's control in this process with one thread, without Ray, and prints a
table. Shares of one run compare across machines; seconds do not. With `--set resources.ranks=N`, or
`resources.gpus=N`, this process is the first of N ranks.
"""

import argparse
import os
import resource
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from jobs import job_of

from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.trainer.loop import train
from rltune.trainer.ranks.launch import ranks_for

PARTS = ("collect", "score", "credit", "update", "sync", "eval", "checkpoint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", type=Path, default=Path("sweeps/kl.yaml"))
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    overrides = [f"budget.steps={args.steps}", *args.set]
    spec = expand(load_sweep(args.sweep, overrides=overrides, seeds=[args.seed]))[0]
    config = TrialConfig.model_validate(dict(spec.config))
    torch.set_num_threads(config.resources.threads)
    with tempfile.TemporaryDirectory() as folder:
        trial = TrialDir(Path(folder) / spec.trial_id).create()
        job = job_of(config, trial, spec.config_hash)
        with ranks_for(config, trial=trial.path, base=Path()) as group:
            result = train(replace(job, group=group))
        rows = read_metrics(trial.metrics).rows
        gates = [row for row in rows if "heldout/success_rate" in row]
        print("gates", *(f"{gate['step']}:{gate['heldout/success_rate']:.4f}" for gate in gates))
        report(rows, result.total_s, config)


def report(rows: tuple[dict[str, float], ...], total_s: float, config: TrialConfig) -> None:
    steps = [row for row in rows if row["step"]]
    sums = {part: sum(row.get(f"timing_s/{part}", 0.0) for row in rows) for part in PARTS}
    tokens = steps[-1]["budget/generated_tokens"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{config.rollout.groups} groups x {config.rollout.group_size} rollouts, "
        f"{len(steps)} steps, {config.resources.threads} thread(s)"
    )
    for part, seconds in sums.items():
        share, per_step = 100 * seconds / total_s, seconds / len(steps)
        print(f"  {part:<11}{seconds:8.1f} s  {share:5.1f} %  {per_step:5.2f} s/step")
    rest = total_s - sum(sums.values())
    print(f"  {'other':<11}{rest:8.1f} s  {100 * rest / total_s:5.1f} %")
    print(f"  {'total':<11}{total_s:8.1f} s")
    print(f"generated tokens {tokens:.0f}, {tokens / sums['collect']:.0f} per second of collect")
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
