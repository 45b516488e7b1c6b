"""Does the laptop profile's PPO learn? Held-out success before and after, over seeds.

    python benchmarks/learning.py [--seeds 0,1,2] [--set key=value]...

Runs the control of sweeps/kl.yaml once per seed, two at a time with one thread each, and prints the
gain of the last gate over the first with a 95 % t interval over seeds.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rltune.report.stats import mean_over_seeds
from rltune.spec.load import load_sweep

SWEEP = Path("sweeps/kl.yaml")


def run(seed: int, steps: int, overrides: list[str]) -> list[float]:
    command = [sys.executable, "benchmarks/trial.py", "--seed", str(seed), "--steps", str(steps)]
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
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    steps = load_sweep(SWEEP, overrides=args.set).control.config["budget"]["steps"]
    with ThreadPoolExecutor(max_workers=2) as pool:
        curves = list(pool.map(lambda seed: run(seed, steps, args.set), seeds))
    gains = [curve[-1] - curve[0] for curve in curves]
    mean = mean_over_seeds(gains)
    print(f"start {[curve[0] for curve in curves]}, end {[curve[-1] for curve in curves]}")
    print(f"gain {mean}")


if __name__ == "__main__":
    main()
