"""Means over seeds and their intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rltune.maths.interval import Interval
from rltune.maths.significance import is_without_spread


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: Mean; NaN without values.
        n: Number of values.
        interval: Where the mean of many seeds lies; None with fewer than two values, and where
            values without any spread bound no luck.

    """

    mean: float
    n: int
    interval: Interval | None


def mean_over_seeds(
    values: Sequence[float], *, confidence: float = 0.95, resolution: float = 0.0
) -> Estimate:
    """Return the mean and its t interval.

    mean +- t(n - 1, (1 + confidence) / 2) * max(s, resolution) / sqrt(n),    s over n - 1

    The seeds are the sample: the interval says what further seeds would do on the same held-out
    tasks, not what further tasks would. It is not clipped to the range of the metric.

    Source: Student (1908). A bootstrap over three to five seeds is too narrow, so it is not used.
    Ours: the floor of s. Three seeds that happen to agree to the last task have no measured spread,
    not a spread of zero. Without a known resolution they have no interval, as `paired_t_p` gives 1.

    Args:
        values: One per seed.
        confidence: Of the interval.
        resolution: Smallest step of the metric: 1 / tasks for a success rate; 0 if not known.

    Raises:
        ValueError: A value is not finite, or confidence is not inside (0, 1).

    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"the mean over seeds needs finite values, got {list(values)}")
    n = len(values)
    if n < 2:
        return Estimate(values[0] if n else math.nan, n, None)
    from scipy.special import stdtrit  # slow to import, and `rltune check` draws without it

    mean, spread = fmean(values), max(stdev(values), resolution)
    if is_without_spread(values, spread):
        return Estimate(mean, n, None)
    half = float(stdtrit(n - 1, (1.0 + confidence) / 2.0)) * spread / math.sqrt(n)
    return Estimate(mean, n, Interval(mean - half, mean + half))


def paired_difference(
    treated: Mapping[int, float], control: Mapping[int, float], *, resolution: float = 0.0
) -> Estimate:
    """Return the mean over seeds of (treated - control of the same seed), with its interval.

    Trials of one seed share their tasks and their sampling noise, so the difference is far less
    noisy than the two means. Seeds that only one side has are left out.
    """
    shared = sorted(treated.keys() & control.keys())
    differences = [treated[seed] - control[seed] for seed in shared]
    return mean_over_seeds(differences, resolution=resolution)


def as_rate(estimate: Estimate) -> Estimate:
    """Return the mean of a rate with its interval cut to [0, 1], beyond which no rate lies."""
    interval = estimate.interval
    return Estimate(estimate.mean, estimate.n, interval.clipped() if interval else None)
