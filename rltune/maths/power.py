"""How many seeds or tasks a difference needs to be seen."""

import math
from collections.abc import Callable
from statistics import NormalDist

MOST = 1_000_000
"""Beyond this many the answer is None: no such experiment is made."""


def seeds_for_power(
    effect: float, spread: float, *, power: float = 0.8, level: float = 0.05, least: int = 2
) -> int | None:
    """Return the pairs with which a two-sided paired t test sees an effect with this power.

    The smallest n >= least with P(|T| > t(n - 1, 1 - level / 2)) >= power, where T is noncentral t
    with n - 1 degrees of freedom and centre sqrt(n) |effect| / spread.

    Source: J. Cohen, Statistical Power Analysis (1988). For an effect that was itself measured with
    few seeds it is a rough number.

    Args:
        effect: Mean difference.
        spread: Standard deviation of the differences.
        power: Chance to see it.
        level: Of the test.
        least: Fewest pairs from which anything is concluded, 2 or more.

    Returns:
        Pairs; None without an effect, without a known spread, or beyond `MOST`.

    """
    if effect == 0.0 or spread <= 0.0 or not math.isfinite(effect / spread):
        return None
    return _smallest(lambda n: _t_power(n, abs(effect) / spread, level) >= power, least)


def _t_power(n: int, size: float, level: float) -> float:
    from scipy.special import nctdtr, stdtrit  # slow to import

    centre, critical = math.sqrt(n) * size, float(stdtrit(n - 1, 1.0 - level / 2.0))
    if n > 1000 or centre > 30:  # the t is normal by then, and nctdtr loses its digits
        return NormalDist().cdf(centre - critical) + NormalDist().cdf(-centre - critical)
    above = 1.0 - float(nctdtr(n - 1, centre, critical))
    return above + float(nctdtr(n - 1, centre, -critical))


def tasks_for_power(p: float, q: float, *, power: float = 0.8, level: float = 0.05) -> int | None:
    """Return the tasks with which McNemar's test sees a difference of two paired rates.

    n = (z_a sqrt(p + q) + z_b sqrt(p + q - (p - q)^2))^2 / (p - q)^2

    Source: R. J. Connor, Biometrics 43 (1987).

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
    z_a, z_b = (NormalDist().inv_cdf(x) for x in (1.0 - level / 2.0, power))
    both, gap = p + q, p - q
    n = math.ceil((z_a * math.sqrt(both) + z_b * math.sqrt(both - gap * gap)) ** 2 / gap**2)
    return n if n <= MOST else None


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
