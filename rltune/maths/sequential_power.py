"""What seeds until decided can be expected to show, by simulation of many such sweeps."""

from collections.abc import Sequence
from dataclasses import dataclass
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
    sign, is_equal = np.zeros(len(d), dtype=int), np.zeros(len(d), dtype=int)
    seeds = np.full(len(d), counts[-1])
    is_open = np.ones(len(d), dtype=bool)
    for n, boundary in zip(counts, boundaries, strict=True):
        mean = d[:, :n].mean(axis=1)
        spread = np.maximum(d[:, :n].std(axis=1, ddof=1), resolution)
        half = -stdtrit(n - 1, boundary / 2.0) * spread / np.sqrt(n)
        is_known = is_open & (spread > 0.0)
        differs = is_known & (np.abs(mean) > half)
        same = is_known & ~differs & (np.abs(mean) + half < effect)
        sign[differs] = np.sign(mean[differs]).astype(int)
        is_equal[same] = 1
        seeds[differs | same] = n
        is_open &= ~(differs | same)
    return Stops(sign, is_equal, seeds)


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
    import numpy as np

    boundaries = nominal_levels(counts, most=most, level=level)
    d = np.random.default_rng(0).normal(0.0, 1.0, (STUDIES, counts[-1])) + abs(size)
    found = stops(d, counts=counts, boundaries=boundaries, effect=margin)
    return Expected(
        different=float((found.sign > 0).mean()),
        equal=float(found.is_equal.mean()),
        seeds=float(found.seeds.mean()),
    )


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
