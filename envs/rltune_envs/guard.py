"""Code that rltune did not write runs here: one call at a time, in a thread, with a time limit.

A call that raises, or does not return within its limit, becomes one `CustomCodeError` with the
file and the line. What a call does to its own thread (`sys.exit`, `KeyboardInterrupt`) stays there.
Calls keep their order, and no result depends on the thread: the guard changes no draw.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CoroutineType
from typing import NoReturn, TextIO

from rltune_envs.code_place import in_brackets, place_of, place_of_thread, said
from rltune_envs.errors import CustomCodeError, HungCodeError, SearchLimitError
from rltune_envs.guard_worker import Answer, Worker, attempt, here

CALL_LIMIT_S = 30.0
"""Longest that a call may take, in seconds, unless the class or function has a `time_limit_s`."""

SLOW_S = 5.0
"""A call that takes longer is told to whoever supervises, and again each second, until it ends."""

MOST_HUNG = 3
"""Calls of one batch that may exceed the limit; the further ones are not made."""

MOST_LEFT = 32
"""Threads that may hang at a time, over all batches; after that no call is made."""

_HARD_S = 15.0  # beyond the limit, after which a process that cannot even look at its clock ends
_LONGEST_S = 1e8  # that a timer of the system takes
_PASSED = (SearchLimitError, NotImplementedError)  # answers of the contract, not failures


class WrongResultError(Exception):
    """What a call returned is not what the contract asks for; raised inside the call."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that takes long.

    Attributes:
        what: What was called.
        place: Where it is, `FILE:LINE, in NAME`; empty when that is not known.
        seconds: How long it has run.
        limit_s: How long it may.

    """

    what: str
    place: str
    seconds: float
    limit_s: float


@dataclass(slots=True)
class _Supervision:
    """Who is told of a slow call, and where a process that hangs for good says so."""

    on_slow: Callable[[Waiting], None] | None = None
    last_words: TextIO | None = None


_supervision = _Supervision()


class _GivenUpError(BaseException):
    """The supervisor waits no more: no failure of the call, so nobody may take it for one."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def supervised(
    on_slow: Callable[[Waiting], None], last_words: TextIO | None = None
) -> Iterator[None]:
    """Tell `on_slow` of calls that take longer than `SLOW_S`; what it raises ends this context.

    Args:
        on_slow: Called each second of such a call, in the thread that waits.
        last_words: A real file. Where code never gives up the interpreter (a runaway regular
            expression), no other thread can end the call: some seconds after its limit the process
            ends, and its traceback is written there. None: such a process hangs.

    """
    before = _supervision.on_slow, _supervision.last_words
    _supervise(on_slow, last_words)
    try:
        yield
    except _GivenUpError as given_up:
        raise given_up.error from None
    finally:
        _supervise(*before)


def _supervise(on_slow: Callable[[Waiting], None] | None, last_words: TextIO | None) -> None:
    """Take over; SIGALRM then writes the traceback of all threads and ends the process."""
    _supervision.on_slow, _supervision.last_words = on_slow, last_words
    if last_words is None:
        faulthandler.unregister(signal.SIGALRM)
    else:
        faulthandler.register(signal.SIGALRM, file=last_words, all_threads=True, chain=True)


@dataclass(slots=True)
class _Pool:
    """The workers of one calling thread."""

    worker: Worker | None = None
    n_hung: int = 0


class _Here(threading.local):
    pool: _Pool | None = None


_here = _Here()


def _forget_pool() -> None:
    """Begin anew in a forked process: its parent's threads are not there."""
    _here.pool = None


os.register_at_fork(after_in_child=_forget_pool)


@dataclass(slots=True)
class _Left:
    threads: list[threading.Thread] = field(default_factory=list)

    def count(self) -> int:
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        return len(self.threads)


_left = _Left()


def new_batch() -> None:
    """Forget the calls that hung: a batch of episodes begins, and each may call again."""
    _pool().n_hung = 0


def _pool() -> _Pool:
    if _here.pool is None:
        _here.pool = _Pool()
    return _here.pool


def call(
    what: str,
    function: Callable[[], object],
    *,
    limit_s: float = CALL_LIMIT_S,
    module: str = "",
) -> object:
    """Return what a function of a user's returns.

    Args:
        what: Names it in errors: `env MyEnv.step()`.
        function: Called without arguments.
        limit_s: Longest that it may take, in seconds.
        module: Where the code is; errors name the deepest line of its package.

    Raises:
        HungCodeError: It did not return in time, or earlier calls of this batch did not.
        CustomCodeError: It raised something, or returned a coroutine.
        SearchLimitError: It raised that.
        NotImplementedError: It raised that.

    """
    if here.is_worker:  # code of a user's that calls code of a user's: one limit for both
        answer = attempt(function)
    else:
        answer = _wait(what, function, _pool(), limit_s, module)
    if answer.error is not None:
        _raise(what, answer.error, module)
    if isinstance(answer.value, CoroutineType):
        answer.value.close()
        raise CustomCodeError(what, "it returned a coroutine; define it with def, not async def")
    return answer.value


def limit_of(home: object) -> float:
    """Return the time limit of a user's class or function, in seconds."""
    limit = getattr(home, "time_limit_s", CALL_LIMIT_S)
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    return float(limit) if is_number and limit > 0 else CALL_LIMIT_S


def _require_room(what: str, pool: _Pool, limit: float) -> None:
    """Refuse a call after too many that hung: waiting for each would take hours."""
    if pool.n_hung >= MOST_HUNG:
        cause = f"not called: {MOST_HUNG} calls before it did not return within {limit:g} s"
        raise HungCodeError(what, cause)
    if _left.count() >= MOST_LEFT:
        raise HungCodeError(what, f"not called: {MOST_LEFT} earlier calls still hang")


def _wait(
    what: str, function: Callable[[], object], pool: _Pool, limit: float, module: str
) -> Answer:
    _require_room(what, pool, limit)
    if pool.worker is None:
        pool.worker = Worker()
    worker, began = pool.worker, time.monotonic()
    try:
        with _last_words(limit):
            worker.ask(function)
            answer = worker.answer(min(limit, SLOW_S))
            while answer is None and (seconds := time.monotonic() - began) < limit:
                if _supervision.on_slow is not None:
                    place = place_of_thread(worker.thread, module)
                    _tell(_supervision.on_slow, Waiting(what, place, seconds, limit))
                answer = worker.answer(min(1.0, limit - seconds))
    except BaseException:  # a signal, or a supervisor who waits no more
        _leave(pool, worker)
        raise
    if answer is not None:
        return answer
    place = place_of_thread(worker.thread, module)
    _leave(pool, worker)
    pool.n_hung += 1
    raise HungCodeError(what, f"it did not return within {limit:g} s{in_brackets(place)}")


def _tell(on_slow: Callable[[Waiting], None], waiting: Waiting) -> None:
    try:
        on_slow(waiting)
    except Exception as error:
        raise _GivenUpError(error) from error


def _leave(pool: _Pool, worker: Worker) -> None:
    pool.worker = None
    worker.leave()
    _left.threads.append(worker.thread)


@contextmanager
def _last_words(limit: float) -> Iterator[None]:
    if _supervision.last_words is None:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, min(limit, _LONGEST_S) + _HARD_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _raise(what: str, error: BaseException, module: str) -> NoReturn:
    """Raise what a call raised, as one error with its place."""
    if isinstance(error, (CustomCodeError, *_PASSED)):
        raise error
    if isinstance(error, WrongResultError):
        raise CustomCodeError(what, str(error)) from error
    place = place_of(error, module)
    cause = f"it raised {said(error)}{in_brackets(place)}"
    raise CustomCodeError(what, cause) from error
