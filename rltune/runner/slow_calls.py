"""Calls of custom code that take long: told while they run, given up once a stop is asked for."""

import io
import sys
from collections.abc import Callable
from typing import TextIO

from rltune.errors import InterruptedRun
from rltune_envs.code_place import in_brackets
from rltune_envs.guard import SLOW_S, Waiting


class SlowCalls:
    """Given to `rltune_envs.guard.supervised`.

    Args:
        say: Gets one line a slow call.
        should_stop: Whether to wait no more; asked each second.

    """

    def __init__(
        self, say: Callable[[str], None], should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._say, self._should_stop = say, should_stop

    def __call__(self, waiting: Waiting) -> None:
        """Look at a call that runs.

        Raises:
            InterruptedRun: A stop was asked for.

        """
        place = in_brackets(waiting.place)
        if self._should_stop():
            raise InterruptedRun(
                f"stopped while {waiting.what} had not returned for {waiting.seconds:.0f} s"
                f"{place}; the same command goes on from the last checkpoint"
            )
        if waiting.is_new:
            self._say(
                f"{waiting.what} has not returned for {SLOW_S:g} s{place}; it may take "
                f"{waiting.limit_s:g} s, then it is a fault"
            )


def last_words() -> TextIO | None:
    """Return standard error where it is a real file, for `supervised`; None where it is not."""
    try:
        return sys.stderr if sys.stderr.fileno() >= 0 else None
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return None
