"""Calls that hang, counted over a batch of episodes which several threads may play.

No number may depend on how many threads there are. So the count goes by the place of a piece of
work in the batch, not by the clock: what comes after the last hang that a batch allows is refused,
whether or not another thread was faster.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rltune_envs.errors import HungCodeError

MAX_HUNG = 3
"""Calls of one batch that may exceed the limit; later ones are not made."""


class Batch:
    """The calls of one batch of episodes; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hung: list[int] = []
        self._first_calls: dict[int, tuple[str, float]] = {}
        self._n_places = 1  # 0: calls outside any piece of work

    def take_places(self, number: int) -> range:
        """Return the places of the next pieces of work, in their order."""
        with self._lock:
            start = self._n_places
            self._n_places += number
        return range(start, start + number)

    def require_open(self, what: str, limit_s: float) -> None:
        """Note that this piece of work calls custom code.

        Raises:
            HungCodeError: Too many calls hung at this place or before: to wait for each would take
                hours.

        """
        place = _place.get()
        with self._lock:
            self._first_calls.setdefault(place, (what, limit_s))
            n_hung = sum(hung <= place for hung in self._hung)
        if n_hung >= MAX_HUNG:
            raise _not_called(what, limit_s)

    def count_hung(self) -> None:
        """Note that a call of this piece of work hung."""
        with self._lock:
            self._hung.append(_place.get())

    @property
    def has_refused(self) -> bool:
        """Whether too many calls hung, so that some work may not count."""
        with self._lock:
            return len(self._hung) >= MAX_HUNG

    def refusal(self, place: int) -> HungCodeError | None:
        """Return why a finished piece of work does not count; None where it does.

        One thread alone would not have made its calls: too many hung before it. Ask once all work
        at earlier places is done.
        """
        with self._lock:
            last = sorted(self._hung)[MAX_HUNG - 1 : MAX_HUNG]
            call = self._first_calls.get(place)
        return _not_called(*call) if call and last and place > last[0] else None


def _not_called(what: str, limit_s: float) -> HungCodeError:
    cause = f"not called: {MAX_HUNG} calls before it did not return within {limit_s:g} s"
    return HungCodeError(what, cause)


_batch: ContextVar[Batch] = ContextVar("batch")
_place: ContextVar[int] = ContextVar("place", default=0)


def new_batch() -> None:
    """Forget the calls that hung: a batch of episodes begins, and each may call again."""
    _batch.set(Batch())


def current_batch() -> Batch:
    """Return the batch of this thread, or of the thread whose context it runs in."""
    if _batch.get(None) is None:
        new_batch()
    return _batch.get()


@contextmanager
def at_place(place: int) -> Iterator[None]:
    """Do the piece of work at a place of the batch."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)
