"""Coverage of the 95 % intervals over seeds in the tables, by simulation.

    python benchmarks/coverage.py [--studies 4000] [--reps 2000]
    python benchmarks/coverage.py until-decided [--studies 20000]

Draws the seeds of many studies from a known distribution and counts the intervals that contain its
mean. `rates` are what a sweep measures: each seed's policy has a success rate of its own (normal,
mean 0.5, sd 0.06), and 256 tasks are played. `skewed` is an exponential. `tasks apart` counts the
tasks of all seeds as one sample, which rltune does not do. The last rows are the false alarms of
tests: how often they find a difference that is not there. `until-decided` is the error of a test
that looks after every seed, and what it saves: `benchmarks/until_decided.py`.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Sequence

import numpy as np
import until_decided
from numpy.typing import NDArray

from rltune.analysis.stats import mean_over_seeds
from rltune.gate import wilson_interval
from rltune.maths.resample import bootstrap_interval, row_iqm, row_mean
from rltune.maths.significance import paired_t_p, sign_flip_p

Values = NDArray[np.float64]
Shape = Callable[[np.random.Generator, int], Values]
Interval = Callable[[Values], tuple[float, float] | None]

WHAT = ("intervals", "until-decided")
SEEDS = (3, 5, 10, 20)
TASKS, RATE, SPREAD = 256, 0.5, 0.06


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="intervals", choices=WHAT)
    parser.add_argument("--studies", type=int, default=None)
    parser.add_argument("--reps", type=int, default=2000)
    args = parser.parse_args()
    if args.what == "until-decided":
        until_decided.main(args.studies or 20_000)
        return
    args.studies = args.studies or 4000
    print(f"{'interval':34}" + "".join(f"{f'{n} seeds':>10}" for n in SEEDS))
    for name, shape in (("normal", normal), ("rates", rates), ("skewed", skewed)):
        for what, interval in intervals(args.reps).items():
            if what.startswith("iqm") and name == "skewed":
                continue  # its interquartile mean is not its mean
            shares = [covered(shape, interval, n, args.studies) for n in SEEDS]
            print(f"{f'{name}: {what}':34}" + "".join(f"{share:>10.1%}" for share in shares))
    shares = [covered(rates, wilson_of_all, n, args.studies) for n in SEEDS]
    print(f"{'rates: tasks apart (Wilson)':34}" + "".join(f"{share:>10.1%}" for share in shares))
    for what, test in (("t test", paired_t_p), ("sign flip", sign_flip_p)):
        shares = [false_alarms(test, n, min(args.studies, 1000)) for n in SEEDS]
        print(f"{f'false alarms: {what}':34}" + "".join(f"{share:>10.1%}" for share in shares))


def intervals(reps: int) -> dict[str, Interval]:
    return {
        "t": lambda x: mean_over_seeds(list(x)).interval,
        "bootstrap, expanded": lambda x: bootstrap_interval([x], row_mean, reps=reps),
        "bootstrap, plain": lambda x: bootstrap_interval([x], reps=reps, is_expanded=False),
        "iqm bootstrap, expanded": lambda x: bootstrap_interval([x], row_iqm, reps=reps),
    }


def normal(rng: np.random.Generator, n: int) -> Values:
    return rng.normal(RATE, SPREAD, n)


def rates(rng: np.random.Generator, n: int) -> Values:
    return rng.binomial(TASKS, rng.normal(RATE, SPREAD, n).clip(0, 1)) / TASKS


def skewed(rng: np.random.Generator, n: int) -> Values:
    return rng.exponential(RATE, n)


def wilson_of_all(values: Values) -> tuple[float, float]:
    return wilson_interval(round(sum(values) * TASKS), TASKS * len(values))


def covered(shape: Shape, interval: Interval, n: int, studies: int) -> float:
    rng = np.random.default_rng(n)
    spans = (interval(shape(rng, n)) for _ in range(studies))
    return float(np.mean([low <= RATE <= high for low, high in spans]))


def false_alarms(test: Callable[[Sequence[float]], float], n: int, studies: int) -> float:
    rng = np.random.default_rng(n)
    return float(np.mean([test(list(rng.normal(0.0, 1.0, n))) < 0.05 for _ in range(studies)]))


if __name__ == "__main__":
    main()
