"""Whose requests an engine computes that several trials share: one trial's at a time."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE_S = 1.0
"""A trial that has asked for nothing for so long loses its turn to one that waits."""
_LOOK_S = 0.1


class Turns:
    """Turns in the order in which trials ask for them.

    A trial keeps its turn over many calls, until it gives it up or is idle while another waits.

    Args:
        idle_s: Seconds without a call after which a turn is lost.
        clock: Returns seconds.

    """

    def __init__(
        self, *, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[object] = []
        self._holder: object | None = None
        self._is_busy = False
        self._since = 0.0  # when the holder's last call ended

    @contextmanager
    def taken(self, who: object, *, is_gone: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Wait for the turn, and have it for one call at least.

        Raises:
            EOFError: `is_gone` returned true meanwhile: nobody waits for the answer any more.

        """
        with self._changed:
            self._wait(who, is_gone)
            self._holder, self._is_busy = who, True
        try:
            yield
        finally:
            with self._changed:
                self._is_busy, self._since = False, self._clock()
                self._changed.notify_all()

    def give_up(self, who: object) -> None:
        """Leave the turn to the next; nothing where it is another's."""
        with self._changed:
            if self._holder is who:
                self._holder = None
                self._changed.notify_all()

    def _wait(self, who: object, is_gone: Callable[[], bool]) -> None:
        self._waiting.append(who)
        try:
            while not self._may_begin(who) and not is_gone():
                self._changed.wait(_LOOK_S)
            if is_gone():
                raise EOFError
        finally:
            self._waiting.remove(who)

    def _may_begin(self, who: object) -> bool:
        if self._is_busy:
            return False
        if self._holder is who:
            return True
        is_left = self._holder is None or self._clock() - self._since >= self._idle_s
        return is_left and self._waiting[0] is who
