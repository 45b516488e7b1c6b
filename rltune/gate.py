"""The held-out gate: when it evaluates, and which checkpoint it chooses. Pure functions."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple

from rltune.maths.interval import Interval
from rltune_envs.faults import FAULT_SHARE, too_many_faults

Mode = Literal["max", "min"]

MACRO = "macro"
"""Stands in metric names for the mean over the named evaluation sets, each counting the same."""

SET_MEASURES = ("em", "f1", "success_rate")
"""What is measured of each named set: EM and F1 where the env has them."""

_OF_A_SET = re.compile(rf"heldout/(\w+)/({'|'.join(SET_MEASURES)})")


class SetMetric(NamedTuple):
    """A held-out metric of a named evaluation set, as in `heldout/nq/em`."""

    name: str  # of the set, or `macro`
    measure: str  # one of `SET_MEASURES`


def set_metric(metric: str) -> SetMetric | None:
    """Return what a metric of a named set measures; None for any other."""
    found = _OF_A_SET.fullmatch(metric)
    return SetMetric(found[1], found[2]) if found else None


@dataclass(frozen=True, slots=True)
class GateResult:
    """One evaluation on the frozen held-out tasks.

    Attributes:
        step: Training steps done before it; 0 is the policy before training.
        metric: The sweep's metric, over the tasks that count.
        n: Tasks that count: those without a fault.
        successes: Tasks solved.
        lost: Tasks whose episode had a fault.

    """

    step: int
    metric: float
    n: int
    successes: int
    lost: int = 0

    @property
    def asked(self) -> int:
        """Tasks played."""
        return self.n + self.lost

    @property
    def is_lost(self) -> bool:
        """Whether faults took so many tasks that the rate over the others proves nothing."""
        return too_many_faults(self.lost, self.asked)


def is_gate_step(step: int, *, every: int, last: int) -> bool:
    """Tell whether the gate evaluates after `step` training steps.

    It does at step 0 (else nothing shows that training beat its start), at every
    multiple of `every`, and at the last step (else the end of training is never seen).

    Raises:
        ValueError: `every` is not positive, or `step` is outside 0..last.

    """
    if every < 1:
        raise ValueError(f"gate.every is {every}; it counts training steps and must be at least 1")
    if not 0 <= step <= last:
        raise ValueError(f"step {step} is outside 0..{last}")
    return step == last or step % every == 0


def choose_best(history: Sequence[GateResult], *, mode: Mode) -> GateResult:
    """Return the evaluation whose checkpoint represents the trial.

    The best finite metric wins; among equals the earliest step, whatever the order of
    `history`. Step 0 is a candidate: when training only did harm, the start is chosen.
    A metric that is not finite never wins. One of a gate that lost too many tasks to faults wins
    only where every gate did.

    Raises:
        ValueError: No evaluation has a finite metric.

    """
    if mode not in ("max", "min"):
        raise ValueError(f"mode {mode!r} is not a direction. Choose 'max' or 'min'.")
    finite = [result for result in history if math.isfinite(result.metric)]
    candidates = [result for result in finite if not result.is_lost] or finite
    if not candidates:
        raise ValueError(
            f"none of {len(history)} gate evaluations has a finite metric; nothing to choose"
        )
    sign = -1.0 if mode == "max" else 1.0
    return min(candidates, key=lambda result: (sign * result.metric, result.step))


def fault_warnings(history: Sequence[GateResult], *, mode: Mode) -> tuple[str, ...]:
    """Return a warning of gates that lost too many tasks to faults; empty without any."""
    lost = [gate for gate in history if gate.is_lost]
    if not lost:
        return ()
    counts = ", ".join(f"{gate.n} of {gate.asked} at step {gate.step}" for gate in lost)
    loss = f"faults took more than {FAULT_SHARE:.0%} of the held-out tasks, leaving {counts}"
    if choose_best(history, mode=mode).is_lost:
        return (f"{loss}; this holds for every gate, so the chosen checkpoint has no result",)
    return (f"{loss}; such a gate is never chosen or compared",)


def ties(history: Sequence[GateResult], *, mode: Mode) -> tuple[GateResult, ...]:
    """Return the other evaluations that reach the metric of the chosen one, in order of steps."""
    best = choose_best(history, mode=mode)
    same = [
        gate
        for gate in history
        if gate.metric == best.metric and gate is not best and gate.is_lost == best.is_lost
    ]
    return tuple(sorted(same, key=lambda gate: gate.step))


class Inversion(NamedTuple):
    """Training success rose while held-out success fell, both beyond their noise.

    Attributes:
        heldout: Success rate at the first and at the last gate.
        heldout_change: Interval of the difference, all of it below 0.
        pool: Success rate over the first and over the last training steps.
        pool_change: Interval of the difference, all of it above 0.

    """

    heldout: tuple[float, float]
    heldout_change: Interval
    pool: tuple[float, float]
    pool_change: Interval


def find_inversion(
    gates: Sequence[GateResult], pool: Sequence[tuple[int, int]], *, window: int = 10
) -> Inversion | None:
    """Return the inversion of a trial; None when there is none.

    Held-out: the first gate against the last. Pool: the first `window` training steps against the
    last `window`, at most half of all steps each. It is one when the 95 % interval of the held-out
    difference lies below 0 and that of the pool difference lies above 0.

    Args:
        gates: Evaluations in the order of their steps.
        pool: (successes, episodes) of each training step, in order.
        window: Training steps that make one rate.

    """
    width = min(window, len(pool) // 2)
    if len(gates) < 2 or width == 0:
        return None
    first, last = gates[0], gates[-1]
    start, end = (first.successes, first.n), (last.successes, last.n)
    heldout = difference_interval(start, end)
    early, late = (_total(part) for part in (pool[:width], pool[-width:]))
    change = difference_interval(early, late)
    if heldout.high >= 0.0 or change.low <= 0.0:
        return None
    return Inversion((_rate(start), _rate(end)), heldout, (_rate(early), _rate(late)), change)


def _total(steps: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(successes for successes, _ in steps), sum(n for _, n in steps)


def _rate(counts: tuple[int, int]) -> float:
    return counts[0] / max(1, counts[1])


def difference_interval(
    before: tuple[int, int], after: tuple[int, int], *, confidence: float = 0.95
) -> Interval:
    """Return Newcombe's interval of the rise from one success rate to another.

    d = p2 - p1, with the Wilson interval (l, u) of each:
    low  = d - sqrt((p2 - l2)^2 + (u1 - p1)^2)
    high = d + sqrt((u2 - p2)^2 + (p1 - l1)^2)

    Both samples count as independent. Gates of one trial play the same tasks with the same sampling
    seeds, so for them it is wider than need be.

    Source: R. G. Newcombe, Statistics in Medicine 17 (1998), method 10.

    Args:
        before: Successes and tries.
        after: Successes and tries.
        confidence: Of the interval.

    """
    if not before[1] or not after[1]:
        return Interval(-1.0, 1.0)  # nothing was tried: nothing is known
    one, two = (wilson_interval(*counts, confidence=confidence) for counts in (before, after))
    p1, p2 = _rate(before), _rate(after)
    low = p2 - p1 - math.hypot(p2 - two.low, one.high - p1)
    high = p2 - p1 + math.hypot(two.high - p2, p1 - one.low)
    return Interval(low, high)


def wilson_interval(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a success rate.

    centre = (p + z^2 / 2n) / (1 + z^2 / n)
    half   = z / (1 + z^2 / n) * sqrt(p (1 - p) / n + z^2 / 4n^2)

    with p = successes / n and z the normal quantile at (1 + confidence) / 2.

    Source: E. B. Wilson, JASA 22 (1927). Without the continuity correction. No trials
    (n = 0) say nothing: the interval is (0, 1).

    Raises:
        ValueError: Not 0 <= successes <= n, or confidence is not inside (0, 1).

    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} trials is impossible")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is outside (0, 1)")
    if n == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    p = successes / n
    shrink = 1.0 + z * z / n
    centre = (p + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(p * (1.0 - p) / n + z * z / (4 * n * n))
    # The ends are exact at 0 and n; rounding would put them a hair outside.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(low, high)
