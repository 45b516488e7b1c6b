"""Custom code runs here: one call at a time, in a thread, with a time limit.

A call that raises, or does not return within its limit, becomes one `CustomCodeError` with the
file and the line. What a call does to its own thread (`sys.exit`, `KeyboardInterrupt`) stays there.
Calls keep their order, and no result depends on the thread.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CoroutineType
from typing import NoReturn, TextIO

from rltune_envs.code_place import describe_error, in_brackets, place_of, place_of_thread
from rltune_envs.errors import CustomCodeError, HungCodeError, SearchLimitError
from rltune_envs.guard_worker import Answer, Worker, attempt, exit_raises, this_thread

CALL_LIMIT_S = 30.0
"""Time limit of a call, in seconds, unless its class or function has a `time_limit_s`."""

SLOW_S = 5.0
"""A call that takes longer is reported to the supervisor, and then each second until it ends."""

MAX_HUNG = 3
"""Calls of one batch that may exceed the limit; later ones are not made."""

MAX_ABANDONED = 32
"""Threads that may hang at a time, over all batches; then no call is made any more."""

_GRACE_S = 15.0  # beyond the limit; then a process whose threads are all blocked is ended
_MAX_TIMER_S = 1e8  # that the system's timer takes


class WrongResultError(Exception):
    """A call returned what the contract does not allow; raised inside the call."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that takes long, for the supervisor.

    Attributes:
        what: What was called.
        place: Where it is, `FILE:LINE, in NAME`; empty where unknown.
        seconds: How long it has run.
        limit_s: How long it may.

    """

    what: str
    place: str
    seconds: float
    limit_s: float


@dataclass(slots=True)
class _Supervision:
    """The listener for slow calls, and the file for the traceback of a process that hangs."""

    on_slow: Callable[[Waiting], None] | None = None
    last_words: TextIO | None = None


_supervision = _Supervision()


class _SupervisorError(BaseException):
    """The supervisor raised: not a failure of the call, and not to be caught as one."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def supervised(
    on_slow: Callable[[Waiting], None], last_words: TextIO | None = None
) -> Iterator[None]:
    """Report calls that take longer than `SLOW_S` to `on_slow`; what it raises ends this context.

    A call of `os._exit` is an error of the custom code here: it would end the process silently.

    Args:
        on_slow: Called each second during such a call, in the thread that waits.
        last_words: A real file. No thread can end code that never releases the interpreter (a
            runaway regular expression): some seconds after its limit the process ends, and its
            traceback is written here. None: such a process hangs.

    """
    before = _supervision.on_slow, _supervision.last_words
    _supervise(on_slow, last_words)
    try:
        with exit_raises(lambda: this_thread.is_worker):
            yield
    except _SupervisorError as raised:
        raise raised.error from None
    finally:
        _supervise(*before)


def _supervise(on_slow: Callable[[Waiting], None] | None, last_words: TextIO | None) -> None:
    """Set the supervision. SIGALRM then writes all threads' tracebacks and ends the process."""
    _supervision.on_slow, _supervision.last_words = on_slow, last_words
    if last_words is None:
        faulthandler.unregister(signal.SIGALRM)
    else:
        faulthandler.register(signal.SIGALRM, file=last_words, all_threads=True, chain=True)


class _Local(threading.local):
    """The worker of a thread that calls, and how many calls of its batch hung."""

    worker: Worker | None = None
    n_hung = 0


_local = _Local()
_abandoned: list[threading.Thread] = []


def new_batch() -> None:
    """Forget the calls that hung: a batch of episodes begins, and each may call again."""
    _local.n_hung = 0


def _forget_worker() -> None:
    """Start afresh in a forked process, which does not have its parent's threads."""
    _local.worker, _local.n_hung = None, 0


os.register_at_fork(after_in_child=_forget_worker)


def call(
    what: str,
    function: Callable[[], object],
    *,
    limit_s: float = CALL_LIMIT_S,
    module: str = "",
) -> object:
    """Return what a custom function returns.

    Args:
        what: Its name in errors: `env MyEnv.step()`.
        function: Called without arguments.
        limit_s: Its time limit, in seconds.
        module: Its module; errors name the deepest line of that package.

    Raises:
        HungCodeError: It did not return in time, or earlier calls of this batch did not.
        CustomCodeError: It raised something, or returned a coroutine.
        SearchLimitError: It raised this.

    """
    is_nested = this_thread.is_worker  # custom code that calls custom code: one limit for both
    answer = attempt(function) if is_nested else _wait(what, function, limit_s, module)
    if answer.error is not None:
        _raise(what, answer.error, module)
    if isinstance(answer.value, CoroutineType):
        answer.value.close()
        raise CustomCodeError(what, "it returned a coroutine; define it with def, not async def")
    return answer.value


def limit_of(home: object) -> float:
    """Return the time limit of a custom class or function, in seconds."""
    limit = getattr(home, "time_limit_s", CALL_LIMIT_S)
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    return float(limit) if is_number and limit > 0 else CALL_LIMIT_S


def _require_room(what: str, limit: float) -> None:
    """Refuse a call after too many that hung: waiting for each would take hours."""
    if _local.n_hung >= MAX_HUNG:
        cause = f"not called: {MAX_HUNG} calls before it did not return within {limit:g} s"
        raise HungCodeError(what, cause)
    _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    if len(_abandoned) >= MAX_ABANDONED:
        raise HungCodeError(what, f"not called: {MAX_ABANDONED} earlier calls still hang")


def _wait(what: str, function: Callable[[], object], limit: float, module: str) -> Answer:
    _require_room(what, limit)
    worker = _local.worker = _local.worker or Worker()
    began = time.monotonic()
    try:
        with _last_words(limit):
            worker.ask(function)
            answer = worker.answer(min(limit, SLOW_S))
            while answer is None and (seconds := time.monotonic() - began) < limit:
                if _supervision.on_slow is not None:
                    place = place_of_thread(worker.thread, module)
                    _tell(_supervision.on_slow, Waiting(what, place, seconds, limit))
                answer = worker.answer(min(1.0, limit - seconds))
    except BaseException:  # a signal, or a supervisor that gives up
        _abandon(worker)
        raise
    if answer is not None:
        return answer
    place = place_of_thread(worker.thread, module)
    _abandon(worker)
    _local.n_hung += 1
    raise HungCodeError(what, f"it did not return within {limit:g} s{in_brackets(place)}")


def _tell(on_slow: Callable[[Waiting], None], waiting: Waiting) -> None:
    try:
        on_slow(waiting)
    except Exception as error:
        raise _SupervisorError(error) from error


def _abandon(worker: Worker) -> None:
    _local.worker = None
    worker.abandon()
    _abandoned.append(worker.thread)


@contextmanager
def _last_words(limit: float) -> Iterator[None]:
    if _supervision.last_words is None:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, min(limit, _MAX_TIMER_S) + _GRACE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _raise(what: str, error: BaseException, module: str) -> NoReturn:
    """Raise the error of a call as a `CustomCodeError` that says where it happened."""
    if isinstance(error, CustomCodeError | SearchLimitError):
        raise error
    if isinstance(error, WrongResultError):
        raise CustomCodeError(what, str(error)) from error
    place = place_of(error, module)
    cause = f"it raised {describe_error(error)}{in_brackets(place)}"
    raise CustomCodeError(what, cause) from error
