"""Where the time goes until a sweep trains, and between its trials; imports and small commands.

    python benchmarks/startup.py [--base CHECKOUT] [--rounds 1] [--trials 3]

Runs sweeps/kl.yaml with trials of one step, one at a time, as a process of its own, and reads from
the files that appear when each part was over. With `--base`, another checkout of rltune does the
same in turn, and the ratio is printed. Ratios of one run compare across machines; seconds do not.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]
SWEEP = (
    *("sweep", "sweeps/kl.yaml", "--seeds", "0", "--max-concurrent", "1"),
    *("--set", "budget.steps=1", "--set", "gate.tasks=16", "--set", "env.train_tasks=64"),
)
MARKS = {  # file that ends a part -> the part
    "driver.lock": "command, imports, sweep file, proof",
    "tune/*/ray-folder": "tasks, plan",
    "tune/*/nodes/*": "Ray, first worker",
    "trials/*/provenance.json": "process of the trial",
    "trials/*/prompt.txt": "torch, policy",
    "trials/*/metrics.jsonl": "W&B, gate before training",
}
AFTER, END, TOTAL = "from one trial to the next", "last trial to exit", "in all"
SMALL = {
    "rltune --help": ["-m", "rltune", "--help"],
    "rltune check sweeps/kl.yaml": ["-m", "rltune", "check", "sweeps/kl.yaml"],
    "import rltune": ["-c", "import rltune"],
    "import rltune.policy.load": ["-c", "import rltune.policy.load"],
    "import rltune.trainer.loop": ["-c", "import rltune.trainer.loop"],
    "import ray.tune": ["-c", "import ray.tune"],
}


def environment(checkout: Path) -> dict[str, str]:
    path = os.pathsep.join([str(checkout), str(checkout / "envs")])
    return {**os.environ, "PYTHONPATH": path}


def appearances(process: subprocess.Popen[bytes], runs: Path) -> Iterator[tuple[str, float]]:
    """Yield each file of the run folder and when it appeared, in seconds from now."""
    began, seen = time.monotonic(), set()
    while process.poll() is None:
        for pattern in (*MARKS, "trials/*/DONE"):
            for path in runs.glob(f"*/{pattern}"):
                if path not in seen:
                    seen.add(path)
                    yield str(path.relative_to(runs)), time.monotonic() - began
        time.sleep(0.01)
    yield "", time.monotonic() - began


def sweep_parts(checkout: Path, trials: int) -> dict[str, float]:
    """Return the seconds of each part of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rltune", *SWEEP, "--max-trials", str(trials)]
        process = subprocess.Popen(
            [*command, "--runs-dir", folder],
            cwd=checkout,
            env=environment(checkout),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        times = list(appearances(process, Path(folder)))
    parts, before = {}, 0.0
    for pattern, part in MARKS.items():
        first = min(at for name, at in times if name and Path(name).match(pattern))
        parts[part], before = first - before, first
    prompts = [at for name, at in times if name.endswith("prompt.txt")]
    ends = [at for name, at in times if name.endswith("DONE")]
    parts[AFTER] = median([b - a for a, b in zip(ends[:-1], prompts[1:], strict=True)])
    parts[END] = times[-1][1] - ends[-1]
    parts[TOTAL] = times[-1][1]
    return parts


def small_parts(checkout: Path) -> dict[str, float]:
    """Return the seconds of small commands and of imports."""
    parts = {}
    for name, command in SMALL.items():
        began = time.monotonic()
        subprocess.run(
            [sys.executable, *command],
            cwd=checkout,
            env=environment(checkout),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        parts[name] = time.monotonic() - began
    return parts


def table(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]]) -> None:
    """Print the median of each part, and how many times as long the other checkout took."""
    for part in ours[0]:
        mine = median(parts[part] for parts in ours)
        line = f"  {part:<38}{mine:7.2f} s"
        if theirs:
            ratios = sorted(b[part] / a[part] for a, b in zip(ours, theirs, strict=True))
            line += f"   base {median(ratios):5.2f} x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="Another checkout, to compare with.")
    parser.add_argument("--rounds", type=int, default=1, help="Repetitions, in alternation.")
    parser.add_argument("--trials", type=int, default=3, help="Trials of a sweep, at least 2.")
    args = parser.parse_args()
    checkouts = [HERE, *([args.base.resolve()] if args.base else [])]
    for title, measure in (
        ("a sweep", lambda checkout: sweep_parts(checkout, args.trials)),
        ("small commands and imports", small_parts),
    ):
        found: list[list[dict[str, float]]] = [[] for _ in checkouts]
        for _ in range(args.rounds):
            for checkout, parts in zip(checkouts, found, strict=True):
                parts.append(measure(checkout))
        print(title)
        table(found[0], found[1] if args.base else [])


if __name__ == "__main__":
    main()
