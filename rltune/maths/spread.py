"""How far paired differences spread over seeds, from a pilot, and how well that is known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rltune.maths.interval import Interval
from rltune.maths.significance import is_without_spread

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

Block = Mapping[tuple[str, int], float]
"""(condition, seed) -> a metric, of one run."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation of paired differences.

    Attributes:
        value: Estimate, in the metric's unit.
        freedom: Its degrees of freedom.
        interval: Where the true one lies.

    """

    value: float
    freedom: int
    interval: Interval


def paired_spread(
    blocks: Sequence[Block], *, resolution: float = 0.0, confidence: float = 0.95
) -> Spread | None:
    """Return the spread over seeds of (condition - another condition of the same seed).

    In each block a metric is a part of the condition, a part of the seed, and a rest e with one
    variance. A difference of two conditions loses the seed's part, so its variance is 2 Var(e):

        s^2 = 2 RSS / df,  sqrt(df s^2 / chi2(df, (1 +- confidence) / 2))

    RSS is the sum of the squared rests after a least-squares fit of the two parts, df the values
    minus the parts that the fit has. The control is one of the conditions: its luck, which all
    differences against it share, counts once.

    Source: two-way analysis of variance without replication, R. A. Fisher, Statistical Methods for
    Research Workers (1925). With two conditions it is the standard deviation of their differences
    with n - 1 degrees of freedom. Ours: no value is below `resolution`, as in `paired_t_p`.

    Args:
        blocks: One a run; cells may be missing.
        resolution: Smallest step of the metric; 0 if not known.
        confidence: Of the interval, which assumes normal rests.

    Returns:
        The spread; None where no two conditions share two seeds, or nothing differs.

    """
    from scipy.special import gammaincinv  # slow to import

    fits = [_rests(block) for block in blocks if block]
    freedom = sum(df for _, df in fits)
    if freedom == 0:
        return None
    rss = sum(float(rests @ rests) for rests, _ in fits)
    spread = math.sqrt(2.0 * rss / freedom)
    if is_without_spread([v for block in blocks for v in block.values()], spread):
        spread = 0.0
    if max(spread, resolution) == 0.0:
        return None

    def limit(tail: float) -> float:
        quantile = 2.0 * float(gammaincinv(freedom / 2.0, tail))
        return max(resolution, spread * math.sqrt(freedom / quantile))

    interval = Interval(limit((1.0 + confidence) / 2.0), limit((1.0 - confidence) / 2.0))
    return Spread(max(spread, resolution), freedom, interval)


def _rests(block: Block) -> "tuple[NDArray[float64], int]":
    """Return what condition and seed leave of each value, and its degrees of freedom."""
    import numpy as np

    conditions = sorted({condition for condition, _ in block})
    seeds = sorted({seed for _, seed in block})
    design = np.zeros((len(block), len(conditions) + len(seeds)))
    for i, (condition, seed) in enumerate(block):
        design[i, conditions.index(condition)] = 1.0
        design[i, len(conditions) + seeds.index(seed)] = 1.0
    values = np.array(list(block.values()), dtype=float)
    parts, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    return values - design @ parts, len(block) - int(rank)
