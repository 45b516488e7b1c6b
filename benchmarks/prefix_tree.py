"""Score and update with shared prefixes against rows apart: how many times faster.

    python benchmarks/prefix_tree.py [--repeats 7] [--threads 1] [--work "QA 32x4" ...]

Plays one training step of shipped sweeps with the shipped policies, and repeats its score and
update in turn: rows that share a prefix as trees, the same rows packed by length, and 32 shuffled
rows to a pass. Every row is scored. Prints medians of ratios, which compare across machines.
"""

import argparse
import os
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from micro_batches import WORK, by_rows, config_of, in_turn, play, step_of

from rltune.maths.prefix_tree import added_tokens
from rltune.policy.load import Policy, policy_of
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.memory import keep_heap

SHARED, APART, SHUFFLED = "shared prefixes", "rows by length", "32 shuffled rows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", nargs="+", default=list(WORK))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_heap()  # as a trial does
    for name in args.work:
        sweep, overrides = WORK[name]
        config = config_of(sweep, overrides)
        policy = policy_of(config, Path(), device="cpu")
        report(name, policy, play(config, policy), config, repeats=args.repeats)


def report(
    name: str, policy: Policy, batch: TokenBatch, config: TrialConfig, *, repeats: int
) -> None:
    read_N = (batch.lengths_N - 1).clamp(min=0)
    distinct = int(added_tokens(batch.ids_NT, read_N, batch.group_N).sum())
    bound = int(read_N.sum()) / distinct
    print(
        f"{name}: {len(batch)} rows, {distinct} distinct tokens of {int(read_N.sum())}: {bound:.2f}"
    )
    times = in_turn(
        {
            SHARED: step_of(policy, batch, config, scores_all=True),
            APART: step_of(policy, batch, config, scores_all=True, is_shared=False),
            SHUFFLED: step_of(policy, batch, by_rows(config), scores_all=True, is_shared=False),
        },
        repeats,
    )
    for way in (APART, SHUFFLED):
        ratios = [took / base for took, base in zip(times[way], times[SHARED], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"  faster than {way:<17}{median(ratios):6.2f} x  {spread}")


if __name__ == "__main__":
    main()
