"""Time taken by the parts of a training step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Sums up the seconds of named parts, until they are taken."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time of a block that ends well under `timing_s/NAME`."""
        began = time.monotonic()
        yield
        key = f"timing_s/{name}"
        self._seconds[key] = self._seconds.get(key, 0.0) + time.monotonic() - began

    def seconds(self, name: str) -> float:
        """Return the seconds of a part since the last `take`; 0 without any."""
        return self._seconds.get(f"timing_s/{name}", 0.0)

    def take(self) -> dict[str, float]:
        """Return all parts, as metrics, and begin anew."""
        taken, self._seconds = self._seconds, {}
        return taken
