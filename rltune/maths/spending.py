"""Boundaries of a test that looks at its data more than once: alpha spending.

The error of the whole test is fixed, and each look spends a part of it. Normal deviates with
independent increments; what is done with them for a few seeds is `rltune.maths.sequential`.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rltune.maths.quadrature import gauss_legendre

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

_LOWEST = -9.0  # standard deviations below which nothing is left
_HIGHEST = 38.0  # beyond it a normal tail is no double any more


def obrien_fleming_spending(fraction: float, level: float) -> float:
    """Return the one-sided error that may be spent until a fraction of the information is in.

    a(t) = 2 (1 - Phi(z / sqrt(t))),   z the normal quantile of 1 - level / 2

    Nearly nothing is spent early, and `level` at t = 1.

    Source: K. K. G. Lan and D. L. DeMets, Biometrika 70 (1983), the spending function that is close
    to the boundaries of O'Brien and Fleming; `sfLDOF` of gsDesign, `asOF` of rpact.

    Args:
        fraction: Information so far over that of the last look, in (0, 1].
        level: One-sided error of the whole test.

    Raises:
        ValueError: A number is out of its range.

    """
    if not 0.0 < fraction <= 1.0 or not 0.0 < level < 1.0:
        raise ValueError(f"fraction {fraction} is outside (0, 1], or level {level} outside (0, 1)")
    from scipy.special import ndtr, ndtri  # slow to import

    return float(2.0 * ndtr(ndtri(level / 2.0) / math.sqrt(fraction)))


def spending_boundaries(information: Sequence[float], spent: Sequence[float]) -> tuple[float, ...]:
    """Return the normal deviate that each look must reach: the upper boundaries.

    b_k is where P(Z_1 < b_1, ..., Z_k-1 < b_k-1, Z_k >= b_k) = spent_k - spent_k-1, for
    Z_k = S_k / sqrt(I_k) and independent increments S_k - S_k-1 ~ N(0, I_k - I_k-1).

    Source: P. Armitage, C. K. McPherson and B. C. Rowe, J. R. Statist. Soc. A 132 (1969): the
    density of S_k where the test goes on, from look to look, by Gauss-Legendre quadrature.

    Args:
        information: I of each look, growing: seeds, or a fraction of the last.
        spent: One-sided error spent until each look, never falling.

    Returns:
        One deviate a look; infinite where a look has nothing to spend.

    Raises:
        ValueError: The two do not fit together.

    """
    _require_growing(information, spent)
    return _boundaries(tuple(map(float, information)), tuple(map(float, spent)))


def _require_growing(information: Sequence[float], spent: Sequence[float]) -> None:
    if len(information) != len(spent):
        raise ValueError(f"{len(information)} looks, and error spent at {len(spent)}")
    steps = zip((0.0, *information), information, strict=False)
    if not all(before < after for before, after in steps):
        raise ValueError(f"information must grow from look to look, got {list(information)}")
    if list(spent) != sorted(spent) or not all(0.0 <= one < 1.0 for one in spent):
        raise ValueError(f"error that is spent never falls and stays in [0, 1), got {list(spent)}")


@lru_cache(maxsize=4096)
def _boundaries(information: tuple[float, ...], spent: tuple[float, ...]) -> tuple[float, ...]:
    """Return the boundaries: each look's mass is a sum over the nodes of the look before."""
    import numpy as np

    start, weight = np.zeros(1), np.ones(1)  # S_0 = 0
    found: list[float] = []
    for k, now in enumerate(information):
        before, gone = (information[k - 1], spent[k - 1]) if k else (0.0, 0.0)
        step, scale = math.sqrt(now - before), math.sqrt(now)
        bound = _reached(start, weight, step, scale, spent[k] - gone)
        found.append(bound)
        start, weight = _go_on(start, weight, step, scale, min(bound, -_LOWEST))
    return tuple(found)


def _reached(
    start: "NDArray[float64]", weight: "NDArray[float64]", step: float, scale: float, error: float
) -> float:
    """Return the deviate that is reached with just this probability."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    def excess(bound: float) -> float:
        return float(weight @ ndtr((start - bound * scale) / step)) - error

    if error <= 0.0 or excess(_HIGHEST) > 0.0:
        return math.inf
    return float(brentq(excess, _LOWEST, _HIGHEST, xtol=1e-12))


def _go_on(
    start: "NDArray[float64]",
    weight: "NDArray[float64]",
    step: float,
    scale: float,
    bound: float,
) -> "tuple[NDArray[float64], NDArray[float64]]":
    """Return nodes of S below the boundary of this look, each with its probability."""
    import numpy as np

    nodes, weights = gauss_legendre()
    half = (bound - _LOWEST) / 2.0 * scale
    s = _LOWEST * scale + half * (nodes + 1.0)
    apart = (s[:, None] - start[None, :]) / step
    density = np.exp(-0.5 * apart * apart) @ weight / (step * math.sqrt(2.0 * math.pi))
    return s, density * weights * half
