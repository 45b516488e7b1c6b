"""Intervals on the difference of two means over tasks, in plain Python: no tensor is needed."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance

from rltune.maths.interval import Interval


def paired_interval(
    ours: Sequence[float], theirs: Sequence[float], *, confidence: float = 0.95
) -> Interval:
    """Return the interval of mean(ours - theirs) when both played the same tasks.

    Successes (all values 0 or 1), with b tasks that only we solved and c that only they did:

        p = (b + 1) / (n + 2),  q = (c + 1) / (n + 2)
        (p - q) +- z * sqrt((p + q - (p - q)^2) / (n + 2))

    Other values: mean(d) +- z * s / sqrt(n) with d = ours - theirs and s over n - 1.

    Source: Bonett and Price, J. Educ. Behav. Stat. 37 (2012), for matched proportions. The added
    task on each side keeps the interval honest where hardly any task differs.

    Args:
        ours: One value a task.
        theirs: One value a task, in the same order.
        confidence: Of the interval.

    Raises:
        ValueError: The lengths differ, or there are too few tasks (none; for other values one).

    """
    n = len(ours)
    if n != len(theirs):
        raise ValueError(f"{n} values and {len(theirs)} of the same tasks cannot be paired")
    d = [a - b for a, b in zip(ours, theirs, strict=True)]
    z = _z(confidence)
    if _is_binary(ours) and _is_binary(theirs):
        _require(n, at_least=1)
        p, q = (d.count(1) + 1) / (n + 2), (d.count(-1) + 1) / (n + 2)
        half = z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
        return Interval(p - q - half, p - q + half)
    _require(n, at_least=2)
    half = z * math.sqrt(variance(d) / n)
    return Interval(fmean(d) - half, fmean(d) + half)


def unpaired_interval(
    ours: Sequence[float], theirs: Sequence[float], *, confidence: float = 0.95
) -> Interval:
    """Return the interval of mean(ours) - mean(theirs) when the tasks differ.

    Successes (all values 0 or 1), x of n ours and y of m theirs:

        p = (x + 1) / (n + 2),  q = (y + 1) / (m + 2)
        (p - q) +- z * sqrt(p (1 - p) / (n + 2) + q (1 - q) / (m + 2))

    Other values: the difference of means +- z * sqrt(s^2 / n + t^2 / m), variances over n - 1.

    Source: Agresti and Caffo, The American Statistician 54 (2000).

    Args:
        ours: One value a task.
        theirs: One value a task, of other tasks.
        confidence: Of the interval.

    Raises:
        ValueError: There are too few tasks on a side (none; for other values one).

    """
    n, m, z = len(ours), len(theirs), _z(confidence)
    if _is_binary(ours) and _is_binary(theirs):
        _require(min(n, m), at_least=1)
        p, q = (sum(ours) + 1) / (n + 2), (sum(theirs) + 1) / (m + 2)
        half = z * math.sqrt(p * (1 - p) / (n + 2) + q * (1 - q) / (m + 2))
        return Interval(p - q - half, p - q + half)
    _require(min(n, m), at_least=2)
    middle = fmean(ours) - fmean(theirs)
    half = z * math.sqrt(variance(ours) / n + variance(theirs) / m)
    return Interval(middle - half, middle + half)


def _is_binary(values: Sequence[float]) -> bool:
    return all(value in (0, 1) for value in values)


def _require(n: int, *, at_least: int) -> None:
    if n < at_least:
        raise ValueError(f"{n} tasks give no interval; at least {at_least} are needed")


def _z(confidence: float) -> float:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)
