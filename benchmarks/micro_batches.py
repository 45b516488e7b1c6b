"""Time of score and update by tokens per micro-batch, and what the skipped scoring saves.

    python benchmarks/micro_batches.py [--repeats 5] [--threads 1] [--tokens 768 2848 8192]

Plays one training step of shipped sweeps with the shipped policies, and repeats its score and
update in turn with each budget, and with and without scoring the rows of the first optimiser step.
Prints medians of the ratio to the first variant: ratios of one run compare across machines.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from rltune.policy.load import Policy, policy_of
from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.micro_batches import limit_of, padding_share
from rltune.trainer.batches.mini_batches import ScoringPlan, plan_scoring, plan_update
from rltune.trainer.collect import collect, tasks_of_step
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.memory import keep_heap
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.tasks import env_maker, freeze_tasks
from rltune.trainer.train_state import make_train_state, score_batch

GRPO = "advantage.kind=grpo"
WORK = {
    "Sokoban 32x4, critic": ("kl", ()),
    "Sokoban 32x4": ("kl", (GRPO,)),
    "Sokoban 8x16": ("kl", (GRPO, "rollout.groups=8", "rollout.group_size=16")),
    "FrozenLake 32x4": ("frozenlake_slip", (GRPO,)),
    "QA 32x4": ("qa_kl", (GRPO,)),
    "one turn, one step": ("kl", (GRPO, "env.max_turns=1", "env.max_actions=2",
                                  "optim.mini_batch_size=128")),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, nargs="+", default=[768, 2848, 8192])
    parser.add_argument("--work", nargs="+", default=list(WORK))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_heap()  # as a trial does
    for name in args.work:
        sweep, overrides = WORK[name]
        config = config_of(sweep, overrides)
        policy = policy_of(config, Path(), device="cpu")
        report(name, policy, play(config, policy), config, args)


def config_of(sweep: str, overrides: Iterable[str]) -> TrialConfig:
    loaded = load_sweep(Path(f"sweeps/{sweep}.yaml"), overrides=list(overrides), seeds=[0])
    return TrialConfig.model_validate(dict(expand(loaded)[0].config))


def play(config: TrialConfig, policy: Policy) -> TokenBatch:
    tasks = tasks_of_step(freeze_tasks(config).train, seed=0, step=1, groups=config.rollout.groups)
    engine = TorchEngine(policy.decoder())
    make_env = env_maker(config.env, config.reward)
    episodes = collect(config, policy, engine, tasks, step=1, make_env=make_env)
    return to_batch(episodes, pad_id=policy.pad_id)


def with_tokens(config: TrialConfig, tokens: int) -> TrialConfig:
    optim = config.optim.model_copy(update={"tokens_per_micro_batch": tokens})
    return config.model_copy(update={"optim": optim})


def by_rows(config: TrialConfig) -> TrialConfig:
    """Return a config of 32 shuffled rows per mini-batch and per forward pass."""
    sets = {"tokens_per_micro_batch": 10**9, "micro_batch_size": 32, "minibatch_by": "row"}
    return config.model_copy(update={"optim": config.optim.model_copy(update=sets)})


def report(
    name: str, policy: Policy, batch: TokenBatch, config: TrialConfig, args: argparse.Namespace
) -> None:
    auto = limit_of(policy, config).tokens
    n_tokens = int(batch.lengths_N.sum())
    print(f"{name}: {len(batch)} rows of {n_tokens / len(batch):.0f} tokens, auto is {auto}")
    ways = {"auto": step_of(policy, batch, config)}
    ways |= {f"{n} tokens": step_of(policy, batch, with_tokens(config, n)) for n in args.tokens}
    ways["auto, every row scored"] = step_of(policy, batch, config, scores_all=True)
    ways["32 rows, every row scored"] = step_of(
        policy, batch, by_rows(config), scores_all=True, is_shared=False
    )
    times = in_turn(ways, args.repeats)
    for way, seconds in times.items():
        ratios = [took / base for took, base in zip(seconds, times["auto"], strict=True)]
        print(f"  {way:<24}{median(ratios):6.3f}   {min(ratios):.3f} to {max(ratios):.3f}")
    limit = limit_of(policy, config, make_train_state(policy, config).pair_cost)
    plan = plan_update(batch, config, step=1, limit=limit)
    scoring = plan_scoring(batch, plan, config, limit)
    n_saved = sum(len(part.rows) for part in scoring.pending)
    parts = (*scoring.parts, *(part for own in plan for part in own.parts))
    print(f"  rows not scored: {n_saved}; padding share: {padding_share(batch, parts):.3f}")


def step_of(
    policy: Policy,
    batch: TokenBatch,
    config: TrialConfig,
    *,
    scores_all: bool = False,
    is_shared: bool = True,
) -> Callable[[], None]:
    """Return one score and update of a batch, of prefixes that rows share or of rows apart."""
    train_state = make_train_state(policy, config)
    if not is_shared:
        train_state.why_rows = "the benchmark compares with rows as they are"
    limit = limit_of(policy, config, train_state.pair_cost)

    def step() -> None:
        plan = plan_update(batch, config, step=1, limit=limit)
        scoring = plan_scoring(batch, plan, config, limit)
        if scores_all:
            scoring = ScoringPlan(scoring.pending + scoring.parts)
        signals = score_batch(
            train_state, batch, temperature=1.0, parts=scoring.parts, pending=scoring.pending
        )
        data = MiniBatch(batch, signals, estimate(batch, signals, config.advantage))
        coef = config.loss.kl_loss_coef
        update(train_state, data, config, step=1, kl_coef=coef, plan=plan)

    return step


def in_turn(ways: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each way, run in turn; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for nth in range(repeats + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if nth:
                times[name].append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    main()
