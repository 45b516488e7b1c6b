"""The alarm for calls that hold the interpreter for too long, when no thread can do anything."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_TIMER_S = 1e8
"""The longest time that the system's timer takes, in seconds."""


class Alarm:
    """The system's timer, set to the earliest deadline of the calls of all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[object, float] = {}

    @contextmanager
    def within(self, seconds: float) -> Iterator[Callable[[float], None]]:
        """Have the process get SIGALRM where this block takes longer.

        Yields:
            What gives the block so many seconds from now on instead.

        """
        key = object()

        def give(seconds: float) -> None:
            self._change(lambda: self._deadlines.update({key: time.monotonic() + seconds}))

        give(seconds)
        try:
            yield give
        finally:
            self._change(lambda: self._deadlines.pop(key))

    def _change(self, change: Callable[[], object]) -> None:
        with self._lock:
            change()
            earliest = min(self._deadlines.values(), default=None)
            left = 0.0 if earliest is None else max(0.001, earliest - time.monotonic())
            signal.setitimer(signal.ITIMER_REAL, min(left, MAX_TIMER_S))
