"""Sample sizes: how many seeds or tasks are needed to detect a difference.

Every power here is that of the test itself, not of an approximation to it.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING

from rltune.maths.quadrature import gauss_legendre

if TYPE_CHECKING:
    from numpy import float64, int_
    from numpy.typing import NDArray

MOST = 1_000_000
"""Beyond this many the answer is None: no such experiment is made."""

_REACH = 12.0  # standard deviations on both sides that sums and integrals cover
_EVEN = 2.0  # spread of the discordant tasks from which power grows with every task


def seeds_for_power(
    effect: float,
    spread: float,
    *,
    power: float = 0.8,
    level: float = 0.05,
    least: int = 2,
    freedom: float = 1.0,
) -> int | None:
    """Return the pairs with which a two-sided paired t test sees an effect with this power.

    The smallest n >= least whose `t_power` is at least `power`.

    Source: J. Cohen, Statistical Power Analysis (1988). For an effect that was itself measured with
    few seeds it is a rough number.

    Args:
        effect: Mean difference.
        spread: Standard deviation of the differences.
        power: Chance to see it.
        level: Of the test.
        least: Fewest pairs from which anything is concluded, 2 or more.
        freedom: Degrees of freedom per (pair - 1); Welch's test has between 1 and 2.

    Returns:
        Pairs; None without an effect, without a known spread, or beyond `MOST`.

    """
    if effect == 0.0 or spread <= 0.0 or not math.isfinite(effect / spread):
        return None
    size = abs(effect) / spread
    return _smallest(lambda n: t_power(n, size, level=level, freedom=freedom) >= power, least)


def t_power(n: int, size: float, *, level: float = 0.05, freedom: float = 1.0) -> float:
    """Return the power of a two-sided t test of n pairs.

    P(|T| > t) with T = (Z + sqrt(n) size) / S and t = t(df, 1 - level / 2), df = freedom (n - 1),
    which is the integral over s of [Phi(sqrt(n) size - t s) + Phi(-sqrt(n) size - t s)] f(s), where
    f is the density of S, the root of a chi-squared variable with df degrees of freedom over df.

    Source: the noncentral t distribution, by Gauss-Legendre quadrature over the spread.

    Args:
        n: Pairs, 2 or more.
        size: Mean difference over the standard deviation of the differences.
        level: Of the test.
        freedom: As in `seeds_for_power`.

    """
    import numpy as np
    from scipy.special import gammaln, ndtr, stdtrit  # slow to import

    df, centre = freedom * (n - 1), math.sqrt(n) * size
    critical, reach = float(stdtrit(df, 1.0 - level / 2.0)), _REACH / math.sqrt(2.0 * df)
    nodes, weights = gauss_legendre()
    low, high = max(0.0, 1.0 - reach), 1.0 + reach
    s = low + (high - low) * (nodes + 1.0) / 2.0
    constant = math.log(2.0) + df / 2.0 * math.log(df / 2.0) - float(gammaln(df / 2.0))
    density = np.exp(constant + (df - 1.0) * np.log(s) - df * s * s / 2.0)
    seen = ndtr(centre - critical * s) + ndtr(-centre - critical * s)
    return min(1.0, float(weights @ (density * seen)) * (high - low) / 2.0)


def size_for_power(n: int, *, power: float = 0.8, level: float = 0.05) -> float:
    """Return the smallest size that a two-sided paired t test of n pairs sees with this power.

    The root of `t_power` in the size: mean difference over the standard deviation of differences.

    Args:
        n: Pairs, 2 or more.
        power: Chance to see it.
        level: Of the test, below power.

    """
    low, high = 0.0, 1.0
    while t_power(n, high, level=level) < power:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        sees = t_power(n, middle, level=level) >= power
        low, high = (low, middle) if sees else (middle, high)
    return high


def tasks_for_z_power(
    effect: float, spread: float, *, power: float = 0.8, level: float = 0.05
) -> int | None:
    """Return the tasks with which a two-sided paired z test sees an effect with this power.

    The smallest n with Phi(sqrt(n) |effect| / spread - z) + Phi(-sqrt(n) |effect| / spread - z) >=
    power, where z is the normal quantile of 1 - level / 2.

    Args:
        effect: Mean difference over tasks.
        spread: Standard deviation of the differences.
        power: Chance to see it.
        level: Of the test.

    Returns:
        Tasks; None without an effect, without a known spread, or beyond `MOST`.

    """
    if effect == 0.0 or spread <= 0.0 or not math.isfinite(effect / spread):
        return None
    normal, size = NormalDist(), abs(effect) / spread
    z = normal.inv_cdf(1.0 - level / 2.0)

    def sees(n: int) -> bool:
        centre = math.sqrt(n) * size
        return normal.cdf(centre - z) + normal.cdf(-centre - z) >= power

    return _smallest(sees, 2)


def tasks_for_power(p: float, q: float, *, power: float = 0.8, level: float = 0.05) -> int | None:
    """Return the tasks with which McNemar's exact test sees a difference of two paired rates.

    The smallest n from which on `mcnemar_power` is at least `power`. The level of an exact test
    moves in steps, so where nearly every task differs one task more can lower the power; n is the
    number after which it no longer falls below.

    Args:
        p: Share of tasks that only one side solves.
        q: Share that only the other solves.
        power: Chance to see it.
        level: Of the two-sided test.

    Returns:
        Tasks; None without a difference, or beyond `MOST`.

    """
    if p == q:
        return None

    def sees(n: int) -> bool:
        return mcnemar_power(n, p, q, level=level) >= power

    enough, both = _smallest(sees, 1), min(1.0, p + q)
    if enough is None or math.sqrt(enough * both * (1.0 - both)) >= _EVEN:
        return enough
    reach = 3 * math.isqrt(enough) + 3
    short = (n for n in range(enough + reach, max(0, enough - reach), -1) if not sees(n))
    return next(short, 0) + 1


def mcnemar_power(n: int, p: float, q: float, *, level: float = 0.05) -> float:
    """Return the power of McNemar's exact test over n tasks.

    sum over m of P(M = m) P(min(B, m - B) <= k(m)), where M is binomial(n, p + q), B given M = m is
    binomial(m, p / (p + q)), and k(m) is the most with 2 P(X <= k) < level, X binomial(m, 1/2).

    Source: Q. McNemar, Psychometrika 12 (1947), exact form, as in `significance.mcnemar_p`.

    Args:
        n: Tasks.
        p: Share of tasks that only one side solves.
        q: Share that only the other solves.
        level: Of the two-sided test.

    Raises:
        ValueError: The shares cannot be of the same tasks.

    """
    if min(p, q) < 0.0 or p + q > 1.0 + 1e-9:
        raise ValueError(f"shares {p:g} and {q:g} of the same tasks: none below 0, sum at most 1")
    import numpy as np
    from scipy.special import bdtr, bdtrc, gammaln, xlog1py, xlogy  # slow to import

    both = min(1.0, p + q)
    reach = _REACH * math.sqrt(n * both * (1.0 - both)) + _REACH
    low, high = math.floor(n * both - reach), math.ceil(n * both + reach)
    m = np.arange(max(1, low), min(n, high) + 1)
    chances = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1)
    weights = np.exp(chances + xlogy(m, both) + xlog1py(n - m, -both))
    k = _critical(m, level)
    m, k, weights = m[k >= 0], k[k >= 0], weights[k >= 0]
    share = p / both
    return float(weights @ (bdtr(k, m, share) + bdtrc(m - k - 1, m, share)))


def _critical(m: "NDArray[int_]", level: float) -> "NDArray[float64]":
    """Return the most k with 2 P(X <= k) < level, X binomial(m, 1/2); -1 where there is none."""
    import numpy as np
    from scipy.special import bdtr, ndtri

    k: NDArray[float64]
    k = np.floor(m / 2.0 + ndtri(level / 2.0) * np.sqrt(m) / 2.0) + 1.0  # never too small
    k = np.minimum(k, m)
    while (is_much := (k >= 0) & (2.0 * bdtr(np.maximum(k, 0), m, 0.5) >= level)).any():
        k = np.where(is_much, k - 1.0, k)
    return k


def _smallest(is_enough: Callable[[int], bool], least: int) -> int | None:
    """Return the smallest n from least to MOST that is enough; more is enough, too."""
    low, high = least - 1, least
    while not is_enough(high):
        if high >= MOST:
            return None
        low, high = high, min(2 * high, MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
