"""What seeds until decided can be expected to show, by simulation of many such sweeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rltune.maths.sequential import nominal_levels

if TYPE_CHECKING:
    from numpy import float64, int_
    from numpy.typing import NDArray

STUDIES = 20_000  # whose shares are known to within 0.4 points
_LARGEST = 64.0  # standard deviations; an effect beyond it needs no plan


@dataclass(frozen=True, slots=True)
class Stops:
    """How many simulated conditions ended, one number a condition.

    Attributes:
        sign: 1 above, -1 below, 0 neither.
        is_equal: Called practically equal.
        seeds: Pairs that it needed.

    """

    sign: "NDArray[int_]"
    is_equal: "NDArray[int_]"
    seeds: "NDArray[int_]"


def stops(
    differences_ST: "NDArray[float64]",
    *,
    counts: Sequence[int],
    boundaries: Sequence[float],
    effect: float = 0.0,
    resolution: float = 0.0,
) -> Stops:
    """Return where the looks stop; the vector form of `rltune.maths.sequential.look_at`.

    Args:
        differences_ST: Paired differences, one row a condition, one column a seed.
        counts: Pairs at each look.
        boundaries: The two-sided p of each look.
        effect: Smallest difference of interest; 0: nothing is called practically equal.
        resolution: Smallest step of the metric.

    """
    import numpy as np
    from scipy.special import stdtrit  # slow to import

    d = differences_ST
    mean, half = np.empty((len(d), len(counts))), np.empty((len(d), len(counts)))
    for k, (n, boundary) in enumerate(zip(counts, boundaries, strict=True)):
        mean[:, k] = d[:, :n].mean(axis=1)
        spread = np.maximum(d[:, :n].std(axis=1, ddof=1), resolution)
        half[:, k] = -stdtrit(n - 1, boundary / 2.0) * spread / np.sqrt(n)
    return _first_stops(mean, half, counts, effect)


def _first_stops(
    mean_SK: "NDArray[float64]",
    half_SK: "NDArray[float64]",
    counts: Sequence[int],
    effect: float,
) -> Stops:
    """Return what the first look decides that decides anything; no spread, no decision.

    Args:
        mean_SK: Mean differences, one row a condition, one column a look.
        half_SK: Half the width of their intervals.
        counts: Pairs at each look.
        effect: As in `stops`.

    """
    import numpy as np

    is_known = half_SK > 0.0
    differs = is_known & (np.abs(mean_SK) > half_SK)
    same = is_known & ~differs & (np.abs(mean_SK) + half_SK < effect)
    stop = differs | same
    rows, at = np.arange(len(stop)), stop.argmax(axis=1)
    sign = np.where(differs[rows, at], np.sign(mean_SK[rows, at]), 0.0).astype(int)
    seeds = np.where(stop[rows, at], np.asarray(counts)[at], counts[-1])
    return Stops(sign, same[rows, at].astype(int), seeds)


@dataclass(frozen=True, slots=True)
class Expected:
    """What one condition can be expected to end as."""

    different: float  # chance of a claim in the direction of the effect
    equal: float  # chance of practically equal
    seeds: float  # mean seeds until then


def expected(
    size: float, *, counts: Sequence[int], most: int, level: float, margin: float = 0.0
) -> Expected:
    """Return what looks at normal differences of a true size come to.

    Args:
        size: True mean difference over the standard deviation of the differences.
        counts: Pairs at each look.
        most: Pairs of the last look.
        level: Two-sided error of all looks together.
        margin: Smallest difference of interest over the same standard deviation.

    """
    mean, half = _looks(tuple(counts), nominal_levels(counts, most=most, level=level))
    found = _first_stops(mean + abs(size), half, counts, margin)
    return Expected(
        different=float((found.sign > 0).mean()),
        equal=float(found.is_equal.mean()),
        seeds=float(found.seeds.mean()),
    )


@lru_cache(maxsize=4)
def _looks(
    counts: tuple[int, ...], boundaries: tuple[float, ...]
) -> "tuple[NDArray[float64], NDArray[float64]]":
    """Return mean differences without an effect, and half the width of their intervals.

    Of the same draws each time; one row a condition, one column a look.
    """
    import numpy as np
    from scipy.special import stdtrit  # slow to import

    d = np.random.default_rng(0).normal(0.0, 1.0, (STUDIES, counts[-1]))
    n = np.array(counts)
    mean = d.cumsum(axis=1)[:, n - 1] / n
    spread = np.sqrt(((d * d).cumsum(axis=1)[:, n - 1] - n * mean * mean) / (n - 1))
    return mean, -stdtrit(n - 1, np.array(boundaries) / 2.0) * spread / np.sqrt(n)


def detectable(
    *, counts: Sequence[int], most: int, level: float, power: float = 0.8
) -> float | None:
    """Return the smallest size that is found with this power, in standard deviations.

    The same draws for every size, so that more effect is never less power. None beyond 64.
    """

    def sees(size: float) -> bool:
        return expected(size, counts=counts, most=most, level=level).different >= power

    low, high = 0.0, 1.0
    while not sees(high):
        low, high = high, 2.0 * high
        if high > _LARGEST:
            return None
    while high - low > 1e-3 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if sees(middle) else (middle, high)
    return high


def seeds_for_looks(
    size: float, *, start: int, block: int, level: float, power: float = 0.8, most: int = 100
) -> int | None:
    """Return the most seeds to plan, so that looks find a size with this power.

    Args:
        size: True mean difference over the standard deviation of the differences, not 0.
        start: Pairs at the first look, 2 or more.
        block: Pairs between two looks.
        level: Two-sided error of all looks together.
        power: Chance to find it.
        most: Beyond this many the answer is None.

    """

    def sees(last: int) -> bool:
        counts = (*range(start, last, block), last)
        return expected(size, counts=counts, most=last, level=level).different >= power

    if not sees(most):
        return None
    low, high = start - 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sees(middle) else (middle, high)
    return high
