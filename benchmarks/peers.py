"""The same training step by TRL and by rltune, in turns: the ratio of their times.

    python benchmarks/peers.py --peer-python PYTHON [--work single-turn] [--pairs 9] [--threads 1]

PYTHON is the interpreter of an environment with trl==1.16.0. Both sides train one randomly
initialised Qwen2 of 0.92 M parameters that this script writes, in float32, with AdamW, GRPO and
one optimiser step on all rows. They make their steps one after the other in processes that live
through the run; a ratio is that of two neighbouring steps. What each step held is counted by the
same hooks on both sides and printed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median

from peer_work.work import WORKS, Count, Work, make_model

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--work", choices=[*WORKS], action="append")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer-micro", type=int, default=128, help="Rows of TRL's micro-batch.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / "model")
        for name in args.work or WORKS:
            pairs = in_turns(args, str(Path(folder) / "model"), name)
            report(name, WORKS[name], pairs[args.warmup :])


def in_turns(args: argparse.Namespace, model: str, name: str) -> list[tuple[Count, Count]]:
    """Return what TRL's and rltune's steps took, pair by pair."""
    steps = args.warmup + args.pairs
    common = [model, name, str(steps), str(args.peer_micro)]
    sides = [
        start([args.peer_python, "-m", "peer_work.trl_side", *common], args.threads),
        start([sys.executable, "-m", "peer_work.rltune_side", *common], args.threads),
    ]
    try:
        return [(step(sides[0]), step(sides[1])) for _ in range(steps)]
    finally:
        for side in sides:
            side.kill()
            side.wait()


def start(command: list[str], threads: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=HERE,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def step(side: subprocess.Popen[str]) -> Count:
    """Let a side make one step."""
    assert side.stdin is not None
    assert side.stdout is not None
    with suppress(BrokenPipeError):
        side.stdin.write("step\n")
        side.stdin.flush()
    line = side.stdout.readline()
    if not line:
        raise SystemExit(f"{side.args} ended before its step; its last lines above say why")
    return Count(**json.loads(line))


def report(name: str, work: Work, pairs: list[tuple[Count, Count]]) -> None:
    ratios = [trl.seconds / ours.seconds for trl, ours in pairs]
    cpu = [trl.cpu_s / ours.cpu_s for trl, ours in pairs]
    print(
        f"{name}: {work.rows} rows in groups of {work.group_size}, prompt {work.prompt}, "
        f"{work.turns} turn(s) of {work.sampled} sampled tokens, {work.observation} between them"
    )
    for side, counts in zip(("TRL", "rltune"), zip(*pairs, strict=True), strict=True):
        print(
            f"  {side:<7} {median(c.seconds for c in counts):7.3f} s a step (median), "
            f"{median(c.cpu_s for c in counts):.3f} of CPU; "
            f"tokens sampled {median(c.sampled for c in counts):,.0f}, "
            f"through the model without a gradient {median(c.read for c in counts):,.0f}, "
            f"with {median(c.trained for c in counts):,.0f}; "
            f"optimiser steps {median(c.optimizer_steps for c in counts):g}"
        )
    print(
        f"  rltune is {median(ratios):.2f} times as fast ({min(ratios):.2f} to "
        f"{max(ratios):.2f} in {len(pairs)} pairs), {median(cpu):.2f} times by CPU time "
        f"({min(cpu):.2f} to {max(cpu):.2f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
