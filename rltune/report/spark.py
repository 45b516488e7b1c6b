"""A spark line: a few numbers as a few characters of rising height, on a scale that is given."""

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"
"""The same eight heights where a console cannot show blocks."""
_UNKNOWN = "?"  # a value that is not finite


def heights_for(encoding: str | None) -> str:
    """Return the characters that an encoding can carry: blocks, else ASCII."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def spark(
    values: Sequence[float], *, low: float, high: float, width: int, heights: str = BLOCKS
) -> str:
    """Return one character a value; of more than `width` values the first, the last, and between.

    Args:
        values: Oldest first.
        low: Value of the lowest character.
        high: Value of the highest; with `high == low` every value has the middle height.
        width: Most characters, at least 2.
        heights: Characters, lowest first.

    """
    if len(values) > width:
        step = (len(values) - 1) / (width - 1)
        values = [values[round(i * step)] for i in range(width)]
    return "".join(_character(value, low, high, heights) for value in values)


def _character(value: float, low: float, high: float, heights: str) -> str:
    if not math.isfinite(value):
        return _UNKNOWN
    top = len(heights) - 1
    if high <= low:
        return heights[top // 2]
    share = min(1.0, max(0.0, (value - low) / (high - low)))
    return heights[round(share * top)]
