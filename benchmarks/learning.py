"""Does the laptop profile's PPO learn? Held-out success before and after, over seeds.

    python benchmarks/learning.py [--sweep sweeps/kl.yaml] [--seeds 0,1,2] [--set key=value]...

Runs the control of a sweep once per seed, two at a time with one thread each, and prints the gain
of the last gate over the first with a 95 % t interval over seeds.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rltune.analysis.stats import mean_over_seeds
from rltune.spec.load import load_sweep


def run(sweep: Path, seed: int, steps: int, overrides: list[str]) -> list[float]:
    command = [sys.executable, "benchmarks/trial.py", "--sweep", str(sweep)]
    command += ["--seed", str(seed), "--steps", str(steps)]
    for override in overrides:
        command += ["--set", override]
    output = subprocess.run(
        command,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ).stdout
    print(f"seed {seed}\n{output}", flush=True)
    line = next(line for line in output.splitlines() if line.startswith("gates "))
    return [float(gate.split(":")[1]) for gate in line.split()[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", type=Path, default=Path("sweeps/kl.yaml"))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    steps = load_sweep(args.sweep, overrides=args.set).control.config["budget"]["steps"]
    with ThreadPoolExecutor(max_workers=2) as pool:
        curves = list(pool.map(lambda seed: run(args.sweep, seed, steps, args.set), seeds))
    gains = [curve[-1] - curve[0] for curve in curves]
    mean = mean_over_seeds(gains)
    print(f"start {[curve[0] for curve in curves]}, end {[curve[-1] for curve in curves]}")
    print(f"gain {mean}")


if __name__ == "__main__":
    main()
