"""Time of training steps that ask a language model: asked after scoring, and before it.

    python benchmarks/judge_overlap.py [--delay-s 1.0] [--steps 3] [--repeats 3]

A scripted judge in a process of its own takes so long to answer each call. The same trial runs both
ways in turn, in this process with one thread; each row is a ratio of one repeat, first steps left
out. Both make the same calls and learn the same.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["JUDGE_BENCHMARK_KEY"] = "sk-benchmark-only"

import torch
from jobs import job_of

import rltune.trainer.step as training_step
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.trainer.credit.asking import asking
from rltune.trainer.credit.attribution import AskJudge
from rltune.trainer.credit.judging import TrialJudge
from rltune.trainer.loop import train

PARTS = ("score", "credit", "update")


@contextmanager
def asked_by_credit(
    judge: TrialJudge, *_: Any, step: int, timed: Callable[[str], AbstractContextManager[None]]
) -> Iterator[AskJudge]:
    """Ask where credit needs the verdicts, after scoring."""
    with timed("judge"):
        yield partial(judge.ask, step=step)


def config_at(url: str, steps: int) -> TrialConfig:
    llm = {"base_url": url, "api_key_env": "JUDGE_BENCHMARK_KEY", "max_concurrency": 128}
    return TrialConfig.model_validate(
        {
            "env": {"kind": "sokoban", "prompt": "compact"},
            "policy": {"model": "tiny"},
            "advantage": {"kind": "grpo"},
            "attribution": {"kind": "adca", "judge": "llm", "llm": llm},
            "loss": {"use_kl_loss": True, "kl_loss_coef": 0.01},
            "rollout": {"max_response_tokens": 16, "max_context": 512},
            "optim": {"lr": 1e-5},
            "gate": {"every": 1000, "tasks": 8},
            "budget": {"steps": steps},
        }
    )


def learned(config: TrialConfig) -> list[dict[str, Any]]:
    """Run a trial; return the metrics of its steps after the first."""
    with tempfile.TemporaryDirectory() as folder:
        trial = TrialDir(Path(folder) / "trial").create()
        train(job_of(config, trial, "0" * 64))
        return list(read_metrics(trial.metrics).rows[2:])


def seconds(rows: list[dict[str, Any]]) -> float:
    return sum(row[f"timing_s/{part}"] for row in rows for part in PARTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-s", type=float, default=1.0, help="Of an answer.")
    parser.add_argument("--steps", type=int, default=3, help="Of a trial, after the first.")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    command = [sys.executable, "-m", "rltune.judge.scripted_server", "--delay-s"]
    server = subprocess.Popen([*command, str(args.delay_s)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    ratios = []
    try:
        config = config_at(server.stdout.readline().strip(), args.steps + 1)
        for _ in range(args.repeats):
            ways = {}
            for name, way in (("after", asked_by_credit), ("before", asking)):
                training_step.asking = way
                ways[name] = learned(config)
            after, before = seconds(ways["after"]), seconds(ways["before"])
            ratios.append(after / before)
            waited = sum(row["timing_s/judge"] for row in ways["before"]) / args.steps
            score = sum(row["timing_s/score"] for row in ways["before"]) / args.steps
            losses = [[row["actor/pg_loss"] for row in rows] for rows in ways.values()]
            print(
                f"score + credit + update {after / args.steps:.2f} s a step asked after scoring, "
                f"{before / args.steps:.2f} s before it: {ratios[-1]:.2f} x; score {score:.2f} s, "
                f"then waited {waited:.2f} s; {'equal' if losses[0] == losses[1] else 'OTHER'} loss"
            )
    finally:
        server.terminate()
        server.wait()
    print(f"median {statistics.median(ratios):.2f} x ({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main()
