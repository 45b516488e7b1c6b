"""The held-out gate: when it evaluates, and which checkpoint it chooses. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple

Mode = Literal["max", "min"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """One evaluation on the frozen held-out tasks.

    Attributes:
        step: Training steps done before it; 0 is the policy before training.
        metric: The sweep's metric.
        n: Tasks evaluated.
        successes: Tasks solved.

    """

    step: int
    metric: float
    n: int
    successes: int


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


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
    A metric that is not finite never wins.

    Raises:
        ValueError: No evaluation has a finite metric.

    """
    if mode not in ("max", "min"):
        raise ValueError(f"mode {mode!r} is not a direction. Choose 'max' or 'min'.")
    candidates = [result for result in history if math.isfinite(result.metric)]
    if not candidates:
        raise ValueError(
            f"none of {len(history)} gate evaluations has a finite metric; nothing to choose"
        )
    sign = -1.0 if mode == "max" else 1.0
    return min(candidates, key=lambda result: (sign * result.metric, result.step))


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
