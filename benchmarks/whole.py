"""A whole trial, or a whole sweep, by this checkout and by another one, in turns: ratio and memory.

    python benchmarks/whole.py --against CHECKOUT [--pairs 3] [--short] [--set key=value]...
    python benchmarks/whole.py --against CHECKOUT --quickstart [--pairs 3]

The trial is the control of sweeps/kl.yaml in one process with one thread, by each checkout's
benchmarks/trial.py: 80 steps, or 32 with `--short`, whose two gates are the same share of its work
as the five of the whole. The quickstart is `rltune sweep sweeps/quickstart.yaml` from the command
to its end. A ratio above 1 says that this checkout is faster.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent.parent
TRIAL = ("benchmarks/trial.py", "--steps", "80")
SHORT = ("benchmarks/trial.py", "--steps", "32", "--set", "gate.every=32")
QUICKSTART = ("-m", "rltune", "sweep", "sweeps/quickstart.yaml")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one checkout."""

    seconds: float
    cpu_s: float  # of all its processes
    peak_mib: float  # of the trial's process; 0 where it is not one process
    output: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--quickstart", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    command = QUICKSTART if args.quickstart else SHORT if args.short else TRIAL
    command = (*command, *(part for key in args.set for part in ("--set", key)))
    print(" ".join(command), flush=True)
    ratios, cpu, other_is_first = [], [], True
    for _ in range(args.pairs):
        order = (args.against.resolve(), HERE)
        runs = {at: run(at, command) for at in (order if other_is_first else order[::-1])}
        other_is_first = not other_is_first
        other, ours = (runs[at] for at in order)
        ratios.append(other.seconds / ours.seconds)
        cpu.append(other.cpu_s / ours.cpu_s)
        print(f"  {line_of(other)} there, {line_of(ours)} here: {ratios[-1]:.2f}", flush=True)
    print(ours.output)
    print(
        f"{median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"{median(cpu):.2f} times by CPU time ({min(cpu):.2f} to {max(cpu):.2f})"
    )


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def line_of(done: Run) -> str:
    times = f"{done.seconds:.1f} s ({done.cpu_s:.1f} of CPU)"
    return times + (f" and {done.peak_mib:.0f} MiB" if done.peak_mib else "")


def run(checkout: Path, command: tuple[str, ...]) -> Run:
    """Run a command with the code of a checkout; what it writes is thrown away."""
    with tempfile.TemporaryDirectory() as runs:
        began, before = time.monotonic(), cpu_of_children()
        done = subprocess.run(
            [sys.executable, *command],
            cwd=checkout,
            env={
                **os.environ,
                "PYTHONPATH": f"{checkout}:{checkout / 'envs'}",
                "RLTUNE_RUNS_DIR": runs,
            },
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        wall, cpu_s = time.monotonic() - began, cpu_of_children() - before
    if done.returncode:
        raise SystemExit(
            f"{checkout}: {' '.join(command)} ended with {done.returncode}\n{done.stdout}"
        )
    total = re.search(r"^  total +([\d.]+) s$", done.stdout, re.MULTILINE)
    peak = re.search(r"^peak memory (\d+) MiB$", done.stdout, re.MULTILINE)
    return Run(
        float(total[1]) if total else wall,
        cpu_s,
        float(peak[1]) if peak else 0.0,
        done.stdout.rstrip(),
    )


if __name__ == "__main__":
    main()
