"""How long a call has run, where the calls of several threads share one interpreter."""

from collections.abc import Callable
from typing import Protocol

from rltune_envs.guard_worker import Answer

STRETCH = 8.0
"""At most so many times its limit a call may take while others compute."""

_LEAST_S = 0.05


class Hand(Protocol):
    """What makes a call: a thread or a process."""

    def answer(self, wait_s: float) -> Answer | None:
        """Return the answer; None when there is none within so many seconds."""

    def place(self, module: str) -> str:
        """Return where it is now: `FILE:LINE, in NAME`; empty where unknown."""

    def others_s(self) -> float:
        """Return the CPU time, in seconds, of what keeps it from running, ever since."""


class Patience:
    """Waits for the answer of a call, up to its limit.

    Time in which others compute does not count: Python runs one thread at a time, so that a step of
    1 s takes 32 s beside 31 others. A call that hangs while others compute is waited for up to
    `STRETCH` times its limit.

    Args:
        hand: Makes the call.
        limit_s: Its time limit, in seconds.

    Attributes:
        waited_s: Seconds that were waited.

    """

    def __init__(self, hand: Hand, limit_s: float) -> None:
        self._hand = hand
        self._limit_s = limit_s
        self._counted_s = 0.0
        self._others_s = hand.others_s()
        self.waited_s = 0.0

    @property
    def left_s(self) -> float:
        """The rest of its limit, in seconds."""
        return self._limit_s - self._counted_s

    def answer(self, wait_s: float) -> Answer | None:
        """Return the answer; None when there is none within so many seconds, or its limit."""
        pause = max(min(wait_s, self.left_s), _LEAST_S)
        if (answer := self._hand.answer(pause)) is not None:
            return answer
        others, self._others_s = self._others_s, self._hand.others_s()
        self._counted_s += max(pause - (self._others_s - others), pause / STRETCH)
        self.waited_s += pause
        return None


def no_alarm(seconds: float) -> None:
    """Do nothing: no alarm is set that would need more time."""


GiveTime = Callable[[float], None]
"""Moves an alarm to so many seconds from now."""
