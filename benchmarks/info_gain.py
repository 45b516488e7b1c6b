"""Cost of information gain: as a share of a training step, and beside other ways to score it.

    python benchmarks/info_gain.py [--steps 4] [--repeats 7] [--set key=value]...

Scores one batch of sweeps/a2tgpo_modes.yaml in turn in several ways, and prints medians as
multiples of the pass that computes the old logprobs of rows that share prefixes. Then trains a
trial in the sweep's last mode for a few steps, and divides the seconds of its parts by those
multiples. All in this process with one thread: shares and multiples of one run compare across
machines, seconds do not.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from jobs import job_of

from rltune.policy.gold import GoldCopy, encode_gold
from rltune.policy.gold_scores import gold_logprobs
from rltune.policy.load import Policy, policy_of
from rltune.rollout.episode import Probes
from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.rollout.torch_engine import TorchEngine
from rltune.signals.info_gain import InfoGains
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.trainer.batches.micro_batches import MicroBatch, cut_batch, limit_of
from rltune.trainer.collect import collect, tasks_of_step
from rltune.trainer.credit.attribution import gold_reader
from rltune.trainer.credit.info_gain import information_gain
from rltune.trainer.loop import train
from rltune.trainer.ranks.scoring import score_actions
from rltune.trainer.tasks import env_maker, freeze_tasks
from rltune.trainer.train_state import make_train_state, score_batch
from rltune.types import Episode

SWEEP = Path("sweeps/a2tgpo_modes.yaml")
PARTS = ("collect", "score", "credit", "update")
PLAIN, READ = "old logprobs", "old logprobs and gains"
CACHED, APART = "  the same, rows as they are", "gains by a separate pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    overrides = [f"budget.steps={args.steps}", "gate.tasks=16", *args.set]
    spec = expand(load_sweep(SWEEP, overrides=overrides, seeds=[0]))[-1]
    config = TrialConfig.model_validate(dict(spec.config))
    torch.set_num_threads(config.resources.threads)
    policy = policy_of(config, Path(), device="cpu")
    multiples = report_multiples(policy, *play(config, policy), config, repeats=args.repeats)
    with tempfile.TemporaryDirectory() as folder:
        trial = TrialDir(Path(folder) / spec.trial_id).create()
        report_shares(run_trial(config, trial, spec.config_hash), multiples)


def run_trial(config: TrialConfig, trial: TrialDir, config_hash: str) -> list[dict[str, float]]:
    train(job_of(config, trial, config_hash))
    return [row for row in read_metrics(trial.metrics).rows if row["step"]]


def report_shares(steps: list[dict[str, float]], multiples: dict[str, float]) -> None:
    seconds = {part: median(row[f"timing_s/{part}"] for row in steps) for part in PARTS}
    whole = sum(seconds.values())
    print(f"median of {len(steps)} training steps; the gain is in score")
    for part, took in seconds.items():
        print(f"  {part:<11}{took:7.2f} s  {100 * took / whole:5.1f} %")
    plain = seconds["score"] / multiples[READ]
    rest = whole - seconds["score"] + plain
    for name, cost in (("so the gain takes", multiples[READ] - 1), (APART, multiples[APART])):
        print(f"  {name:<28}{100 * cost * plain / (rest + cost * plain):5.1f} %")


def play(config: TrialConfig, policy: Policy) -> tuple[TokenBatch, list[Episode]]:
    tasks = tasks_of_step(
        freeze_tasks(config).train, seed=config.seed, step=1, groups=config.rollout.groups
    )
    episodes = collect(
        config,
        policy,
        TorchEngine(policy.decoder()),
        tasks,
        step=1,
        make_env=env_maker(config.env, config.reward),
        probes=Probes(gold=True),
    )
    return to_batch(episodes, pad_id=policy.pad_id), episodes


def report_multiples(
    policy: Policy,
    batch: TokenBatch,
    episodes: list[Episode],
    config: TrialConfig,
    *,
    repeats: int,
) -> dict[str, float]:
    train_state, limit = make_train_state(policy, config), limit_of(policy, config)
    shared = cut_batch(batch, limit_of(policy, config, train_state.pair_cost))
    whole = cut_batch(batch, limit)
    copies = [copies_of(policy, episode) for episode in episodes]
    parts = [(batch.rows(part.rows).ids_NT, part.rows) for part in whole]

    def packed() -> dict[int, torch.Tensor]:
        return scores(lambda ids, own: gold_logprobs(policy.model, ids, own), parts, copies)

    def apart() -> dict[int, torch.Tensor]:
        return scores(lambda ids, own: one_by_one(policy, ids, own), parts, copies)

    def read(pieces: tuple[MicroBatch, ...]) -> InfoGains:
        reader = gold_reader(policy, batch, episodes, config.attribution)
        score_batch(train_state, batch, temperature=1.0, parts=pieces, gold=reader)
        return reader.gains()

    ways: dict[str, Callable[[], object]] = {
        PLAIN: lambda: score_batch(train_state, batch, temperature=1.0, parts=shared),
        READ: lambda: read(shared),
        CACHED: lambda: read(whole),
        APART: lambda: information_gain(
            policy,
            batch,
            episodes,
            ig_type="prob_diff",
            limit=limit,
        ),
        "  the forward alone": packed,
        "  one forward per context": apart,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    tokens, answers = int(batch.lengths_N.sum()), sum(map(len, copies))
    extra = sum(copy.n_read for own in copies for copy in own)
    print(f"{len(batch)} rows, {tokens} tokens; {answers} gold answers, {extra} tokens")
    multiples = {name: median(taken) / median(times[PLAIN]) for name, taken in times.items()}
    for name, taken in times.items():
        print(f"  {name:<38}{median(taken):7.3f} s  {multiples[name]:6.2f} x")
    ratios = [cached / read for cached, read in zip(times[CACHED], times[READ], strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"shared prefixes: {median(ratios):.2f} x faster than rows as they are, {spread}")
    one, other = packed(), apart()
    gap = max((one[row] - other[row]).abs().nan_to_num().max().item() for row in one)
    print(f"largest difference between one forward and many: {gap:.1e}")
    return multiples


Rows = list[list[GoldCopy]]
Parts = list[tuple[torch.Tensor, np.ndarray]]


def scores(
    score: Callable[[torch.Tensor, Rows], torch.Tensor], parts: Parts, copies: Rows
) -> dict[int, torch.Tensor]:
    logp = {}
    for ids, index in parts:
        scored = score(ids, [copies[row] for row in index])
        logp |= dict(zip(index.tolist(), scored, strict=True))
    return logp


def copies_of(policy: Policy, episode: Episode) -> list[GoldCopy]:
    copies, end = [], 0
    for turn in episode.turns:
        start = end + len(turn.prompt_ids)
        end = start + len(turn.sampled_ids)
        for answer in turn.gold.golds if turn.gold else ():
            encoded = encode_gold(policy.tokenizer, turn.gold.before, answer, turn.gold.after)
            copies.append(GoldCopy(start, *encoded))
    return copies


@torch.no_grad()
def one_by_one(policy: Policy, ids_BT: torch.Tensor, copies_B: Rows) -> torch.Tensor:
    """Score the first copy of all rows, then the second of those that have one, and so on."""
    out = torch.full((len(ids_BT), max(map(len, copies_B))), torch.nan)
    for j in range(out.shape[1]):
        rows = [row for row, copies in enumerate(copies_B) if len(copies) > j]
        picked = [copies_B[row][j] for row in rows]
        width = max(copy.context_end + copy.n_read for copy in picked)
        ids = torch.zeros(len(rows), width, dtype=torch.int64)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        for at, (row, copy) in enumerate(zip(rows, picked, strict=True)):
            start, stop = copy.context_end, copy.context_end + copy.n_read
            ids[at, :start] = ids_BT[row, :start]
            ids[at, start:stop] = torch.tensor(copy.ids[: copy.n_read])
            mask[at, start:stop] = torch.tensor(copy.scored[: copy.n_read])
        logp_M = score_actions(policy.model, ids, mask, temperature=1.0).tokens.logprobs_M
        logp = torch.zeros(mask.shape).masked_scatter(mask, logp_M)
        out[rows, j] = logp.sum(1) / mask.sum(1)
    return out


if __name__ == "__main__":
    main()
