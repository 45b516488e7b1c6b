"""Compare two trials or two conditions at their last gates.

Over seeds if each side has two or more, paired where they share two or more. Otherwise over the
held-out tasks of one trial per side, which covers the luck of the tasks only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev, variance

from rltune.analysis.compare_sides import Side, last_gate, require_comparable
from rltune.analysis.ends import NO_VERDICT, end_of, pairs_of
from rltune.analysis.rates import is_rate_metric, recorded_resolution
from rltune.analysis.stats import as_rate, mean_over_seeds
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.comparability.records import TrialRecord
from rltune.gate import wilson_interval
from rltune.lineage.noise import scores_of
from rltune.maths.difference import paired_interval
from rltune.maths.interval import Interval
from rltune.maths.power import seeds_for_power, tasks_for_power, tasks_for_z_power
from rltune.maths.resample import probability_of_improvement
from rltune.maths.significance import mcnemar_p, normal_p, paired_t_p, sign_flip_p, welch


@dataclass(frozen=True, slots=True)
class Half:
    """One side of a comparison."""

    label: str  # its name
    value: float  # mean of its last gates
    interval: Interval | None  # over its seeds (t) or its tasks (Wilson); None where unknown
    seeds: tuple[int, ...]  # that entered
    planned: int  # seeds planned; 1 for a trial


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of comparing A with B.

    Attributes:
        metric: What is compared, at the last gate.
        a: First side.
        b: Second side.
        unit: What n counts: `paired seeds`, `seeds` (a side, independent), `tasks` (paired).
        n: How many; of independent seeds the smaller side.
        difference: A - B.
        interval: Its 95 % interval; None where it cannot be told.
        test: Name of the test.
        p: Its p value, unadjusted; None where there is no test.
        p_holm: The same, adjusted over `comparisons`; None but for conditions of one sweep.
        comparisons: Comparisons of the sweep that the adjustment is over; 1 without one.
        p_sign_flip: Of the exact sign-flip permutation; None unless seeds are paired.
        p_above: Chance that a seed of A is above a seed of B; None over tasks.
        needed: As many of the unit see a difference of this size with 80 % power; None if unknown.
        hits: Tasks that A and B solved, of those that both played; None but for success over tasks.
        looks: Looks that the interval and `p_holm` are adjusted for; 0 for a list of seeds.
        verdict: `above`, `below`, `practically equal`, `not separable`, `stopped early at 20`, or
            `no verdict (why)`.
        sentence: The same in words.
        notes: What a reader must know, too.

    """

    metric: str
    a: Half
    b: Half
    unit: str
    n: int
    difference: float
    interval: Interval | None
    test: str = ""
    p: float | None = None
    p_sign_flip: float | None = None
    p_above: float | None = None
    needed: int | None = None
    hits: tuple[int, int] | None = None
    p_holm: float | None = None
    comparisons: int = 1
    looks: int = 0
    verdict: str = NO_VERDICT
    sentence: str = ""
    notes: tuple[str, ...] = ()


def compare(a: Side, b: Side) -> Compared:
    """Compare the last gates of two sides.

    Raises:
        InputError: They cannot be compared, and why.

    """
    require_comparable(a, b)
    ours, theirs = a.finals(), b.finals()
    shared = sorted(ours.keys() & theirs.keys())
    if len(shared) >= 2:
        return _paired_seeds(a, b, ours, theirs)
    if min(len(ours), len(theirs)) >= 2:
        return _independent_seeds(a, b, ours, theirs)
    return _paired_tasks(a, b, *_one_each(a, b, shared))


def _one_each(a: Side, b: Side, shared: Sequence[int]) -> tuple[TrialRecord, TrialRecord]:
    """Return the trials of the seed that both have, else the only one of each side."""
    seeds = (shared[0], shared[0]) if shared else (min(a.finals()), min(b.finals()))
    return a.record(seeds[0]), b.record(seeds[1])


def _paired_seeds(
    a: Side, b: Side, ours: Mapping[int, float], theirs: Mapping[int, float]
) -> Compared:
    """Compare seeds that both have; only those that ended at the same step enter the difference."""
    resolution = recorded_resolution(a.metric, a.records[0])
    paired = pairs_of(*([end_of(record) for record in side.records] for side in (a, b)))
    d = [x - y for x, y in paired.values()]
    estimate = mean_over_seeds(d, resolution=resolution)
    shared = sorted(paired) or sorted(ours.keys() & theirs.keys())
    ours, theirs = ({s: side[s] for s in shared} for side in (ours, theirs))
    compared = Compared(
        metric=a.metric,
        a=_half(a, ours),
        b=_half(b, theirs),
        unit="paired seeds",
        n=len(d),
        difference=estimate.mean,
        interval=estimate.interval,
    )
    if len(d) < 2:
        return compared
    return replace(
        compared,
        test="paired t test",
        p=paired_t_p(d, resolution=resolution),
        p_sign_flip=sign_flip_p(d),
        p_above=probability_of_improvement(list(ours.values()), list(theirs.values())),
        needed=seeds_for_power(estimate.mean, max(stdev(d), resolution), least=SEEDS_FOR_A_CLAIM),
    )


def _independent_seeds(
    a: Side, b: Side, ours: Mapping[int, float], theirs: Mapping[int, float]
) -> Compared:
    xs, ys = list(ours.values()), list(theirs.values())
    resolution = recorded_resolution(a.metric, a.records[0])
    try:
        test = welch(xs, ys, resolution=resolution)
    except ValueError:  # no side has any spread
        test = None
    difference = fmean(xs) - fmean(ys)
    spreads = [max(variance(side), resolution**2) for side in (xs, ys)]
    return Compared(
        metric=a.metric,
        a=_half(a, ours),
        b=_half(b, theirs),
        unit="seeds",
        n=min(len(xs), len(ys)),
        difference=difference,
        interval=test.interval if test else None,
        test="Welch's t test",
        p=test.p if test else None,
        p_above=probability_of_improvement(xs, ys),
        needed=_seeds_a_side(difference, spreads),
    )


def _seeds_a_side(difference: float, variances: Sequence[float]) -> int | None:
    """Return the seeds a side with which Welch's test sees a difference, at these variances."""
    total = sum(variances)
    squares = sum(v * v for v in variances)
    freedom = total * total / squares if squares else 1.0  # Welch's, of equally many a side
    return seeds_for_power(difference, math.sqrt(total), least=SEEDS_FOR_A_CLAIM, freedom=freedom)


def _half(side: Side, finals: Mapping[int, float]) -> Half:
    resolution = recorded_resolution(side.metric, side.records[0])
    estimate = mean_over_seeds(list(finals.values()), resolution=resolution)
    estimate = as_rate(estimate) if is_rate_metric(side.metric) else estimate
    return Half(side.label, estimate.mean, estimate.interval, tuple(sorted(finals)), side.planned)


def _paired_tasks(a: Side, b: Side, ours: TrialRecord, theirs: TrialRecord) -> Compared:
    scores = [scores_of(last_gate(record), a.metric) or [] for record in (ours, theirs)]
    both = [(x, y) for x, y in zip(*scores, strict=True) if x is not None and y is not None]
    xs, ys = [x for x, _ in both], [y for _, y in both]
    d = [x - y for x, y in both]
    is_rate = all(value in (0.0, 1.0) for value in (*xs, *ys)) and bool(both)
    compared = Compared(
        metric=a.metric,
        a=_half_of_tasks(a, xs, ours, is_rate=is_rate),
        b=_half_of_tasks(b, ys, theirs, is_rate=is_rate),
        unit="tasks",
        n=len(both),
        difference=fmean(d) if d else math.nan,
        interval=paired_interval(xs, ys) if len(d) > 1 else None,
    )
    if is_rate:
        only_ours, only_theirs = d.count(1.0), d.count(-1.0)
        return replace(
            compared,
            hits=(int(sum(xs)), int(sum(ys))),
            test="exact McNemar test",
            p=mcnemar_p(only_ours, only_theirs),
            needed=tasks_for_power(only_ours / len(d), only_theirs / len(d)),
        )
    if len(d) < 2:
        return compared
    spread = stdev(d)
    return replace(
        compared,
        test="paired z test",
        p=normal_p(compared.difference, spread / math.sqrt(len(d))),
        needed=tasks_for_z_power(compared.difference, spread),
    )


def _half_of_tasks(
    side: Side, scores: Sequence[float], record: TrialRecord, *, is_rate: bool
) -> Half:
    interval = wilson_interval(int(sum(scores)), len(scores)) if is_rate else None
    value = fmean(scores) if scores else math.nan
    label = side.label if side.is_trial else f"{side.label}@{record.spec.seed}"
    return Half(label, value, interval, (record.spec.seed,), 1)
