"""Share of this machine's matrix-multiply limit that score and update reach, on distinct tokens.

    python benchmarks/limit.py [--work sokoban] [--rounds 5] [--threads 1]

Useful work of a step is one forward pass over the distinct tokens of each group (a prefix that
several rows of a group share counts once) for the score, and three (forward, and backward at twice
that) for the update: the multiplications of linear layers, attention and vocabulary head, nothing
else. The limit is torch.mm's speed in the same process, measured after each step: for squares of
1024, and for the model's own shapes at 1024 tokens. A share is that of one step over the limit
beside it. Rows whose score is left to the update count as scored; where that is all of them, there
is no share.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "2")

import torch
import yaml
from jobs import job_of
from peer_work.rltune_side import sweep_of
from peer_work.work import WORKS, make_model

from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import Progress
from rltune.trainer.credit.judging import make_judge
from rltune.trainer.job import Job
from rltune.trainer.memory import keep_heap
from rltune.trainer.step import TrainingStep
from rltune.trainer.stopwatch import Stopwatch
from rltune.trainer.train_state import make_train_state

SHIPPED = {  # sweep and overrides
    "sokoban": ("sweeps/kl.yaml", ("rollout.groups=8", "rollout.group_size=16")),
    "frozenlake": ("sweeps/frozenlake_slip.yaml", ()),
    "qa": ("sweeps/qa_kl.yaml", ()),
}
SINGLE_TURN = "single-turn"
SQUARE, TOKENS, LIMIT_S = 1024, 1024, 0.15
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that a pass over a batch reads."""

    all: int
    distinct: int
    distinct_pairs: int  # (token, token before it or itself) of the distinct ones: attention
    sampled: int


@dataclass(frozen=True, slots=True)
class Round:
    """One step, and the limit beside it."""

    tokens: Tokens
    forward: float  # floating-point operations of a pass over the distinct tokens
    score_s: float
    update_s: float
    square: float  # limits, in operations a second
    shapes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=[*SHIPPED, SINGLE_TURN], action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_heap()
    print(f"{args.threads} thread(s); shares of the limit by squares, and by the model's shapes")
    for name in args.work or (*SHIPPED, SINGLE_TURN):
        with tempfile.TemporaryDirectory() as folder:
            report(name, rounds_of(job_in(Path(folder), name, args.set), args.rounds))


def job_in(folder: Path, name: str, overrides: list[str]) -> Job:
    """Return the control trial of a work."""
    if name == SINGLE_TURN:
        make_model(folder / "model")
        sweep, given = folder / "single.yaml", ()
        text = yaml.safe_dump(sweep_of(str(folder / "model"), WORKS[SINGLE_TURN], steps=1))
        sweep.write_text(text)
        sys.path.insert(0, str(Path(__file__).parent))
    else:
        sweep, given = Path(SHIPPED[name][0]), SHIPPED[name][1]
    spec = expand(load_sweep(sweep, overrides=[*given, *overrides], seeds=[0]))[0]
    config = TrialConfig.model_validate(dict(spec.config))
    return job_of(config, TrialDir(folder / spec.trial_id).create(), spec.config_hash)


def rounds_of(job: Job, n: int) -> list[Round]:
    """Make n + 1 training steps of a trial; the first warms up."""
    watch = Stopwatch()
    training = TrainingStep(job, make_train_state(job.policy, job.config), make_judge(job), watch)
    controllers = Progress().controllers
    rounds = []
    for step in range(1, n + 2):
        job.engine.sync()
        trained = training.make(step, controllers)
        controllers = trained.controllers
        seconds = watch.take()
        tokens = count(to_batch(trained.episodes, pad_id=job.policy.pad_id))
        rounds.append(
            Round(
                tokens,
                forward_flops(job.policy.model, tokens),
                seconds["timing_s/score"],
                seconds["timing_s/update"],
                speed([(SQUARE, SQUARE, SQUARE)]),
                speed(shapes_of(job.policy.model)),
            )
        )
    return rounds[1:]


def count(batch: TokenBatch) -> Tokens:
    """Count what is read of a batch: all of each row but its last token."""
    nodes: set[tuple[int, tuple[int, ...]]] = set()
    n_all = 0
    for row, group, length in zip(
        batch.ids_NT.tolist(), batch.group_N.tolist(), batch.lengths_N.tolist(), strict=True
    ):
        read = tuple(row[: max(0, length - 1)])
        n_all += len(read)
        nodes.update((group, read[:end]) for end in range(1, len(read) + 1))
    pairs = sum(len(prefix) for _, prefix in nodes)
    return Tokens(n_all, len(nodes), pairs, int(batch.action_mask_NT.sum()))


def linear_shapes(model: torch.nn.Module) -> list[tuple[int, int]]:
    """Return (inputs, outputs) of the linear layers of a model's backbone."""
    layers = model.base_model.modules()
    return [(m.in_features, m.out_features) for m in layers if isinstance(m, torch.nn.Linear)]


def forward_flops(model: torch.nn.Module, tokens: Tokens) -> float:
    """Return the operations of a forward pass: 2 for each multiplication with its addition."""
    config = model.config
    head_size = getattr(config, "head_dim", None)
    head_size = head_size or config.hidden_size // config.num_attention_heads
    width = config.num_attention_heads * head_size
    linear = 2 * tokens.distinct * sum(a * b for a, b in linear_shapes(model))
    attention = 4 * tokens.distinct_pairs * width * config.num_hidden_layers
    head = 2 * tokens.sampled * config.hidden_size * config.vocab_size
    return float(linear + attention + head)


def shapes_of(model: torch.nn.Module) -> list[tuple[int, int, int]]:
    """Return (m, k, n) of the products of each kind of linear layer, forward and backward."""
    kinds = sorted(set(linear_shapes(model)))
    return [shape for a, b in kinds for shape in ((TOKENS, a, b), (TOKENS, b, a), (b, TOKENS, a))]


def speed(shapes: list[tuple[int, int, int]]) -> float:
    """Return operations a second of matrix products of these shapes, one after the other."""
    pairs = [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in shapes]

    def products() -> None:
        for a, b in pairs:
            torch.mm(a, b)

    flops = sum(2 * m * k * n for m, k, n in shapes)
    return flops / seconds_of(products)


def seconds_of(work: Callable[[], None]) -> float:
    work()
    times, began = [], time.perf_counter()
    while not times or time.perf_counter() - began < LIMIT_S:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def report(name: str, rounds: list[Round]) -> None:
    tokens = rounds[-1].tokens
    print(
        f"{name}: {tokens.all:,} tokens read a step, {tokens.distinct:,} distinct "
        f"({tokens.all / tokens.distinct:.2f}); limits {rounds[-1].square / GIGA:.0f} and "
        f"{rounds[-1].shapes / GIGA:.0f} GFLOP/s"
    )
    parts = {
        "score": [(r.forward, r.score_s, r) for r in rounds],
        "update": [(3 * r.forward, r.update_s, r) for r in rounds],
    }
    for part, done in parts.items():
        square = [flops / seconds / r.square for flops, seconds, r in done]
        shapes = [flops / seconds / r.shapes for flops, seconds, r in done]
        if median(square) > 1:  # more than can be: nothing was computed
            print(f"  {part:<7} left to the update")
            continue
        print(
            f"  {part:<7} {median(seconds for _, seconds, _ in done):6.3f} s, "
            f"{spread(square)}, {spread(shapes)}",
            flush=True,
        )


def spread(shares: list[float]) -> str:
    return f"{100 * median(shares):3.0f} % ({100 * min(shares):.0f} to {100 * max(shares):.0f})"


if __name__ == "__main__":
    main()
