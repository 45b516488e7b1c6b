"""A confidence interval."""

from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float

    def clipped(self) -> "Interval":
        """Return the part inside [0, 1], where every rate lies."""
        return Interval(max(0.0, self.low), min(1.0, self.high))
