"""Seeds until decided: a paired test that looks at its seeds again and again.

Each look has one interval for the mean difference, wide enough that all looks together miss the
true one with the stated error. What is decided is read from it: different, when it leaves 0 out;
practically equal, when it lies inside +-effect (two one-sided tests); else more seeds are run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev

from rltune.maths.interval import Interval
from rltune.maths.significance import is_without_spread, paired_t_p
from rltune.maths.spending import obrien_fleming_spending, spending_boundaries

SPENT = 0.8
"""Share of the error that is spent. Normal boundaries on the p values of t tests of few pairs let
through up to 1.15 times what they spend; `benchmarks/coverage.py` measures it."""


class Decision(StrEnum):
    """What a look decides about one condition."""

    DIFFERENT = "different"  # the interval leaves 0 out
    EQUAL = "practically equal"  # the interval lies inside +-effect
    GO_ON = "go on"  # neither


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the paired differences of a condition.

    Attributes:
        n: Pairs.
        mean: Their mean difference.
        interval: The repeated confidence interval; None where the pairs have no spread.
        p: Of the paired t test, two-sided, unadjusted.
        boundary: The p at which this look says `different`.
        decision: What it decides.

    """

    n: int
    mean: float
    interval: Interval | None
    p: float
    boundary: float
    decision: Decision


def nominal_levels(
    counts: Sequence[int], *, most: int, level: float, is_final: bool = False
) -> tuple[float, ...]:
    """Return the two-sided p at which each look decides.

    2 (1 - Phi(b_k)), with b the boundaries of `obrien_fleming_spending` of SPENT x level / 2 on
    each side, and n_k / most as the information of look k.

    Source: Lan and DeMets (1983); for t tests C. Jennison and B. W. Turnbull, Group Sequential
    Methods (2000), chapter 11. Ours: `SPENT`.

    Args:
        counts: Pairs at each look, growing, none above most.
        most: Pairs of the last look that is planned.
        level: Two-sided error of all looks together.
        is_final: The last of `counts` is the last look, though it may have fewer pairs than were
            planned: it spends what is left.

    """
    from scipy.special import ndtr  # slow to import

    fractions = [n / most for n in counts]
    if is_final and fractions:
        fractions[-1] = 1.0
    one_sided = SPENT * level / 2.0
    spent = [obrien_fleming_spending(fraction, one_sided) for fraction in fractions]
    return tuple(float(2.0 * ndtr(-bound)) for bound in spending_boundaries(counts, spent))


def look_at(
    differences: Sequence[float], *, boundary: float, effect: float, resolution: float = 0.0
) -> Look:
    """Return what a look at the differences decides.

    mean +- t(n - 1, 1 - boundary / 2) max(s, resolution) / sqrt(n)

    Source: the repeated confidence interval of C. Jennison and B. W. Turnbull, J. R. Statist. Soc.
    B 51 (1989); D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987) for the two one-sided tests.
    Ours: the floor of s, as in `paired_t_p`.

    Args:
        differences: One a pair, at least two.
        boundary: Of this look, from `nominal_levels`.
        effect: Smallest difference of interest; 0: nothing is called practically equal.
        resolution: Smallest step of the metric; 0 if not known.

    """
    n, mean = len(differences), fmean(differences)
    interval = _interval(differences, boundary, resolution)
    return Look(
        n=n,
        mean=mean,
        interval=interval,
        p=paired_t_p(differences, resolution=resolution),
        boundary=boundary,
        decision=decide(interval, effect),
    )


def decide(interval: Interval | None, effect: float) -> Decision:
    """Return what an interval of the mean difference decides."""
    if interval is None:
        return Decision.GO_ON
    if interval.low > 0.0 or interval.high < 0.0:
        return Decision.DIFFERENT
    is_inside = -effect < interval.low and interval.high < effect
    return Decision.EQUAL if is_inside else Decision.GO_ON


def _interval(values: Sequence[float], tail: float, resolution: float) -> Interval | None:
    from scipy.special import stdtrit  # slow to import

    n, spread = len(values), max(stdev(values), resolution)
    if is_without_spread(values, spread):
        return None
    # From the small tail: 1 - tail / 2 would be 1 for the first looks.
    half = -float(stdtrit(n - 1, tail / 2.0)) * spread / math.sqrt(n) if tail > 0.0 else math.inf
    return Interval(fmean(values) - half, fmean(values) + half)


def adjusted_p(p: float, counts: Sequence[int], *, most: int, is_final: bool = False) -> float:
    """Return the p of the last look, adjusted for all looks up to it.

    The smallest level whose boundary at this look is at least p; 1 where no level below 1 is.

    Source: the repeated p value of Jennison and Turnbull (2000), section 9.5.

    Args:
        p: Two-sided p of the last look, unadjusted.
        counts: Pairs at each look, as in `nominal_levels`.
        most: Pairs of the last look that is planned.
        is_final: Whether the last of `counts` is the last look.

    """

    def boundary(level: float) -> float:
        return nominal_levels(counts, most=most, level=level, is_final=is_final)[-1]

    low, high = _LEAST_LOG, 0.0
    if not boundary(_MOST_LEVEL) >= p:
        return 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2.0
        is_reached = boundary(min(_MOST_LEVEL, math.exp(middle))) >= p
        low, high = (low, middle) if is_reached else (middle, high)
    return min(1.0, math.exp(high))


_MOST_LEVEL = 1.0 - 1e-9
_LEAST_LOG = -60.0  # of a level: 1e-26 says as much as any smaller one
