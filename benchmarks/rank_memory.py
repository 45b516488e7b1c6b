"""Peak memory of the first of several ranks, by where its engine is.

    python benchmarks/rank_memory.py [--width 1024] [--layers 8] [--ranks 2]

One step of GRPO by an untrained model on a CPU, its engine in a process of its own or in the
trial's. Each row is of a separate process: the most that it held, less what it held before it
loaded the policy, in copies of the policy's weights in float32. With an engine of its own no rank
has the policy whole while it trains.
"""

import argparse
import multiprocessing
import os
import tempfile
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from jobs import job_of

from rltune.policy.byte_policy import save
from rltune.policy.load import assemble
from rltune.policy.tiny import tiny_model, tiny_tokenizer
from rltune.spec.schema.trial import TrialConfig
from rltune.store.rundir import TrialDir
from rltune.trainer.engines import make_engine
from rltune.trainer.loop import train
from rltune.trainer.memory import peak_rss
from rltune.trainer.ranks.launch import ranks_for


def config_of(model: Path, ranks: int, engine: str) -> TrialConfig:
    """Return the config of a short trial."""
    return TrialConfig.model_validate(
        {
            "env": {"kind": "sokoban", "prompt": "compact"},
            "policy": {"model": str(model)},
            "advantage": {"kind": "grpo"},
            "rollout": {
                "groups": 2,
                "group_size": 2,
                "max_response_tokens": 8,
                "max_context": 128,
            },
            "optim": {"mini_batch_size": 4, "micro_batch_size": 1},
            "gate": {"every": 1, "tasks": 2},
            "budget": {"steps": 1},
            "resources": {"ranks": ranks, "engine": engine},
        }
    )


def measure(model: Path, ranks: int, engine: str, sender: Connection) -> None:
    """Send the bytes that a trial's process has come to hold."""
    torch.set_num_threads(1)
    before = peak_rss()
    config = config_of(model, ranks, engine)
    with tempfile.TemporaryDirectory() as folder:
        trial = TrialDir(Path(folder) / "trial").create()
        job = job_of(config, trial, "0" * 64)
        own = make_engine(config, job.policy)
        try:
            with ranks_for(config, trial=trial.path, base=Path()) as group:
                train(replace(job, engine=own, group=group))
        finally:
            own.close()
    sender.send(peak_rss() - before)


def peak(model: Path, ranks: int, engine: str) -> int:
    """Return what `measure` sends from a fresh process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(model, ranks, engine, sender))
    process.start()
    sender.close()
    amount: int = receiver.recv()
    process.join()
    return amount


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    network = tiny_model("sokoban", hidden_size=args.width, layers=args.layers)
    copy = sum(4 * parameter.numel() for parameter in network.parameters())
    policy = assemble(network, tiny_tokenizer("sokoban"), template="plain", is_bare=True)
    print(f"weights in float32: {copy / 2**20:,.0f} MiB")
    with tempfile.TemporaryDirectory() as folder:
        save(policy, Path(folder))
        for ranks, engine in ((1, "own"), (args.ranks, "shared"), (args.ranks, "own")):
            most = peak(Path(folder), ranks, engine)
            what = f"{ranks} rank{'s' * (ranks > 1)}, engine {engine}"
            print(f"{what:<24}{most / 2**20:>8,.0f} MiB{most / copy:>7.2f} copies", flush=True)


if __name__ == "__main__":
    main()
