"""Map values to positions in a drawing, and choose round ticks for its axes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_PAD = 0.06  # of the range, left free at both ends


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight line from values to places.

    Attributes:
        low: Value at `start`.
        high: Value at `end`.
        start: Place of the lowest value.
        end: Place of the highest.

    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value, to a tenth of a unit."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def scale_over(
    values: Iterable[float],
    *,
    start: float,
    end: float,
    limits: tuple[float, float] | None = None,
) -> Scale:
    """Return a scale that holds all values with some room around them.

    Args:
        values: What must fit.
        start: Place of the lowest value.
        end: Place of the highest.
        limits: Values beyond which nothing lies: [0, 1] of a rate.

    """
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = (high - low) * _PAD or max(abs(high) * 0.1, 0.05)
    low, high = low - room, high + room
    if limits is not None:
        low, high = max(low, limits[0] - 0.02), min(high, limits[1] + 0.02)
    return Scale(low, high, start, end)


def ticks(low: float, high: float, *, most: int = 5) -> list[float]:
    """Return at most `most + 1` round values inside a range."""
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in _ROUND if size * factor >= raw * 0.999999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def steps_ticks(last: int, *, most: int = 5) -> list[int]:
    """Return whole round steps from 0 to the last."""
    return sorted({int(tick) for tick in ticks(0, max(1, last), most=most) if tick == int(tick)})


def plain(value: float) -> str:
    """Return a number for an axis: short, without an exponent where it can be."""
    return f"{value:.6g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"


def rounded(value: float | None) -> str:
    """Return a measure to three significant decimals; a dash without one."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
