"""Tests of a difference, and their correction for many comparisons. Two-sided p values."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev, variance
from typing import NamedTuple

import numpy as np

from rltune.maths.interval import Interval

EXACT_SEEDS = 20  # up to here every one of the 2^n sign patterns is looked at
_PATTERNS = 100_000  # drawn beyond
_ROUNDING = 1e-9  # relative: what differs by less is equal


class Welch(NamedTuple):
    """The difference of two means of independent samples."""

    difference: float  # mean of the first minus mean of the second
    interval: Interval  # its interval
    p: float  # of no difference


def sign_flip_p(differences: Sequence[float], *, rng_seed: int = 0) -> float:
    """Return the exact p of paired differences under flips of their signs.

    The share of the 2^n sign patterns whose |sum| is at least the observed one. n seeds cannot go
    below 2 / 2^n: 0.25 with 3, 0.0625 with 5. It assumes symmetry only, no shape.

    Beyond 20 seeds 100,000 patterns are drawn, and p = (hits + 1) / (drawn + 1).

    Source: R. A. Fisher, The Design of Experiments (1935). NaN without differences.
    """
    d = np.asarray(differences, dtype=float)
    n = len(d)
    if n == 0:
        return math.nan
    least = abs(d.sum()) - _ROUNDING * np.abs(d).sum()
    if n <= EXACT_SEEDS:
        # The first sign stays: a pattern and its negative have the same |sum|.
        sums = d[:1]
        for value in d[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= least).mean())
    signs = np.random.default_rng(rng_seed).choice((-1.0, 1.0), size=(_PATTERNS, n))
    hits = int((np.abs(signs @ d) >= least).sum())
    return (hits + 1) / (_PATTERNS + 1)


def paired_t_p(differences: Sequence[float], *, resolution: float = 0.0) -> float:
    """Return the p of Student's paired t test.

    t = mean / (max(s, resolution) / sqrt(n)) with n - 1 degrees of freedom

    Source: Student (1908). Ours: the floor of s, as in `rltune.analysis.stats.mean_over_seeds`; and
    differences without any spread, which bound no luck, give 1.

    Args:
        differences: One a seed.
        resolution: Smallest step of the metric; 0 if not known.

    Returns:
        The p value; NaN with fewer than two differences.

    """
    n = len(differences)
    if n < 2:
        return math.nan
    spread = max(stdev(differences), resolution)
    if is_without_spread(differences, spread):
        return 1.0
    from scipy.special import stdtr  # slow to import

    return float(2.0 * stdtr(n - 1, -abs(fmean(differences)) / (spread / math.sqrt(n))))


def is_without_spread(values: Sequence[float], spread: float) -> bool:
    """Tell whether a spread is rounding only, so that it bounds no luck."""
    return spread <= _ROUNDING * max(map(abs, values))


def welch(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    confidence: float = 0.95,
    resolution: float = 0.0,
) -> Welch:
    """Return the difference of the means of two independent samples: Welch's t test.

    v = s^2 / n + t^2 / m,  df = v^2 / ((s^2 / n)^2 / (n - 1) + (t^2 / m)^2 / (m - 1))

    Source: B. L. Welch, Biometrika 34 (1947). Ours: s and t are at least `resolution`.

    Raises:
        ValueError: A side has fewer than two values, or neither has any spread.

    """
    n, m = len(ours), len(theirs)
    if min(n, m) < 2:
        raise ValueError(f"{n} and {m} values: each side needs two or more")
    a, b = (max(variance(side), resolution**2) / len(side) for side in (ours, theirs))
    if is_without_spread((*ours, *theirs), math.sqrt(a + b)):
        raise ValueError("neither side has any spread, so chance cannot be estimated")
    from scipy.special import stdtr, stdtrit  # slow to import

    df = (a + b) ** 2 / (a * a / (n - 1) + b * b / (m - 1))
    difference, scale = fmean(ours) - fmean(theirs), math.sqrt(a + b)
    half = float(stdtrit(df, (1.0 + confidence) / 2.0)) * scale
    p = float(2.0 * stdtr(df, -abs(difference) / scale))
    return Welch(difference, Interval(difference - half, difference + half), p)


def mcnemar_p(only_ours: int, only_theirs: int) -> float:
    """Return the exact p of McNemar's test: of the tasks that one side alone solved, half each?

    min(1, 2 P(X <= min(b, c))) with X binomial(b + c, 1/2)

    Source: Q. McNemar, Psychometrika 12 (1947), exact form.

    Args:
        only_ours: b, tasks that only we solved.
        only_theirs: c, tasks that only they solved.

    """
    n, k = only_ours + only_theirs, min(only_ours, only_theirs)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / (1 << n)
    return min(1.0, 2.0 * tail)


def normal_p(mean: float, standard_error: float) -> float:
    """Return the p of a mean whose error is normal; 1 when no error was measured."""
    if standard_error == 0.0:
        return 1.0
    return 2.0 * NormalDist().cdf(-abs(mean) / standard_error)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for all of them together, in the order given.

    The k-th smallest of m becomes the largest of (m - i + 1) p_(i), i <= k, and at most 1. All of
    them below 0.05 hold together with 95 %, whatever they share, here the control.

    Source: S. Holm, Scand. J. Statist. 6 (1979). A p value that is NaN stays so and does not count.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * p))
        adjusted[i] = least
    return adjusted
