"""Seeds until decided, by simulation: error of all looks together, and seeds that are saved.

    python benchmarks/coverage.py until-decided [--studies 20000]

Table 1: a sweep in which the knob does nothing: condition and control have one distribution. The
share of sweeps in which any condition was called above or below, however often it was looked at.
Table 2: every condition is truly better by just the effect of interest; the share of sweeps in
which any was called practically equal, or below.
Table 3: the same as 1 where the knob changes the spread but not the mean, beside a t test of the
full number of seeds: what no test of so few seeds holds.
Table 4: mean seeds of a condition against a fixed design of the same power.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rltune.maths.power import seeds_for_power
from rltune.maths.sequential import nominal_levels
from rltune.maths.sequential_power import detectable, expected, stops

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Values]

LEVEL = 0.05
START = 3
MOST = (3, 4, 5, 6, 8, 10, 12)
CONDITIONS = (1, 2, 3, 5, 7)
TASKS = 256


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    return rng.normal(0.5, 0.06, shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    return rng.exponential(0.5, shape)


def bounded(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    return rng.binomial(TASKS, rng.beta(8.0, 2.0, shape)) / TASKS


def collapsing(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    return np.where(rng.random(shape) < 0.2, 0.0, rng.normal(0.6, 0.05, shape))


SHAPES: dict[str, Draw] = {
    "normal": normal,
    "skewed (exponential)": skewed,
    "bounded (rates near 0.8)": bounded,
    "one seed in five collapses": collapsing,
}


def sweeps(draw: Draw, conditions: int, most: int, studies: int, *, stretch: float = 1.0) -> Values:
    """Return paired differences without an effect: (study, condition, seed)."""
    rng = np.random.default_rng([conditions, most])
    ours = draw(rng, (studies, conditions, most))
    control = draw(rng, (studies, 1, most))
    if stretch == 1.0:
        return ours - control
    mean = float(draw(rng, (1_000_000,)).mean())
    return (ours - mean) * stretch - (control - mean)


def looked(differences: Values, *, effect: float = 0.0) -> tuple[Values, Values, Values]:
    """Return sign, whether equal, and seeds, each (study, condition)."""
    studies, conditions, most = differences.shape
    counts = list(range(START, most + 1))
    found = stops(
        differences.reshape(-1, most),
        counts=counts,
        boundaries=nominal_levels(counts, most=most, level=LEVEL / conditions),
        effect=effect,
        resolution=1 / TASKS,
    )
    shape = (studies, conditions)
    return found.sign.reshape(shape), found.is_equal.reshape(shape), found.seeds.reshape(shape)


def false_claims(differences: Values) -> float:
    return float((looked(differences)[0] != 0).any(axis=1).mean())


def false_equals(differences: Values) -> float:
    effect = float(differences.std())  # as large as the noise of one seed
    sign, is_equal, _ = looked(differences + effect, effect=effect)
    return float(((is_equal == 1) | (sign < 0)).any(axis=1).mean())


def fixed_claims(differences: Values) -> float:
    """Return the error of one t test of all seeds, split over the conditions."""
    studies, conditions, most = differences.shape
    found = stops(
        differences.reshape(-1, most),
        counts=[most],
        boundaries=[LEVEL / conditions],
        resolution=1 / TASKS,
    )
    return float((found.sign.reshape(studies, conditions) != 0).any(axis=1).mean())


def rows_of(title: str, measure: Callable[[Draw, int, int], float]) -> None:
    print(f"\n{title}\n{'outcome':28}{'seeds':>8}" + "".join(f"{m:>8}" for m in CONDITIONS))
    for name, draw in SHAPES.items():
        for most in MOST:
            shares = [measure(draw, m, most) for m in CONDITIONS]
            span = f"{START}-{most}"
            print(f"{name:28}{span:>8}" + "".join(f"{share:>8.2%}" for share in shares), flush=True)


def saved(most: int, conditions: int) -> Sequence[str]:
    counts, level = list(range(START, most + 1)), LEVEL / conditions
    size = detectable(counts=counts, most=most, level=level)
    assert size is not None
    fixed = seeds_for_power(size, 1.0, level=level)
    assert fixed is not None
    cells = [f"{size:.2f}", f"{fixed}"]
    for factor in (1.0, 1.5, 2.0, 3.0):
        one = expected(factor * size, counts=counts, most=most, level=level)
        cells.append(f"{one.seeds:.1f} ({one.seeds / fixed - 1.0:+.0%})")
    return cells


def main(studies: int) -> None:
    rows_of(
        "1. Any false difference, by conditions",
        lambda draw, m, most: false_claims(sweeps(draw, m, most, studies)),
    )
    rows_of(
        "2. Any false equality, by conditions",
        lambda draw, m, most: false_equals(sweeps(draw, m, most, studies)),
    )
    print("\n3. Twice the spread, the same mean: looks / one t test, by conditions")
    for name, draw in SHAPES.items():
        cells = []
        for m in CONDITIONS:
            d = sweeps(draw, m, 12, studies, stretch=2.0)
            cells.append(f"{false_claims(d):>7.1%}/{fixed_claims(d):.1%}")
        print(f"{name:28}{'3-12':>8}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
    print("\n4. Mean seeds; size in standard deviations that is seen with 80 % power")
    print("seeds  conditions  size  fixed  at 1x  1.5x  2x  3x the size")
    for most in (8, 12, 20):
        for m in (1, 3, 7):
            print(f"3-{most:<5}{m:>6}     " + "  ".join(saved(most, m)), flush=True)
