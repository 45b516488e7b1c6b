"""Signs of life: a rank gives one each second, and the first one ends a rank that gives none.

A rank that only computes for long goes on with them, and so does one that waits for the others: a
thread of its own gives them. One that is stopped, or stands still as a whole, does not. Each says
where the rank is, so that one which lives but does not come to the others can be named.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

BEAT_S = 1.0
SILENT_BEATS = 60
"""Beats of the first rank without one of another that end the other. They are counted, not timed:
what slows all processes, or stops all of them, slows the counting as well."""
FIRST_BEATS = 600
"""The same before a rank's first one: it imports torch, from a disk that may be slow."""
_SIGN_BYTES = 64  # of each sign, so that none is ever read in parts


@dataclass(frozen=True, slots=True)
class Sign:
    """Where a rank is."""

    exchanges: int = 0  # with the others that it has begun
    call: str = "the start"  # that it makes, or made last


def beat(descriptor: int, now: Callable[[], Sign] = Sign) -> None:
    """Give signs of life, from now on, to what reads this descriptor.

    Args:
        descriptor: Of a pipe.
        now: Returns where this rank is; asked in another thread.

    """
    threading.Thread(target=_beat, args=[descriptor, now], daemon=True).start()


def _beat(descriptor: int, now: Callable[[], Sign]) -> None:
    with suppress(OSError):  # nobody reads them any more
        while True:
            os.write(descriptor, _written(now()))
            time.sleep(BEAT_S)


class Watch:
    """A thread of the first rank that listens to the others, from `begin` to `end`.

    Args:
        beats: Rank -> descriptor that its signs are read from, without waiting for them.
        kill: Called with each rank that gives none.

    """

    def __init__(self, beats: Mapping[int, int], kill: Callable[[int], None]) -> None:
        self._beats, self._kill = beats, kill
        self._left = dict.fromkeys(beats, FIRST_BEATS)  # beats of ours that each still has
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self.silent: set[int] = set()  # ranks that were ended
        self.signs: dict[int, Sign] = {}  # the last one of each

    def begin(self) -> None:
        """Listen from now on."""
        self._thread.start()

    def end(self) -> None:
        """Listen no more."""
        self._over.set()
        self._thread.join()

    def count(self) -> None:
        """Count one beat of this process."""
        for rank in tuple(self._left):
            self._left[rank] -= 1
            signs = _heard(self._beats[rank])
            if signs:
                self._left[rank] = SILENT_BEATS
                self.signs[rank] = _last_sign(signs)
            if signs == b"":  # it has ended, which says more than its silence
                del self._left[rank]
            elif self._left[rank] == 0:
                self.silent.add(rank)
                self._kill(rank)

    def _listen(self) -> None:
        while not self._over.wait(BEAT_S):
            self.count()


def _heard(descriptor: int) -> bytes | None:
    """Return the signs since the last call; None: none; empty: the process has ended."""
    try:
        return os.read(descriptor, 64 * _SIGN_BYTES)
    except BlockingIOError:
        return None


def _written(sign: Sign) -> bytes:
    return f"{sign.exchanges} {sign.call}".encode()[:_SIGN_BYTES].ljust(_SIGN_BYTES)


def _last_sign(signs: bytes) -> Sign:
    """Return the last of some signs."""
    text = signs[-_SIGN_BYTES:].decode(errors="replace")
    exchanges, _, call = text.rstrip().partition(" ")
    return Sign(int(exchanges), call)
