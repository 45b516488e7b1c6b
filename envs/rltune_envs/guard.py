"""Custom code runs here: in a thread or a process of its own, with a time limit.

A call that raises, or does not return within its limit, becomes one `CustomCodeError` with the
file and the line. What a call does to its own thread (`sys.exit`, `KeyboardInterrupt`) stays there.
Each thread that calls has its calls made one after the other in one other thread.
"""

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CoroutineType
from typing import NoReturn, TextIO

from rltune_envs.code_place import describe_error, in_brackets, place_of
from rltune_envs.errors import CustomCodeError, HungCodeError, SearchLimitError
from rltune_envs.guard_alarm import MAX_TIMER_S, Alarm
from rltune_envs.guard_batch import current_batch, new_batch
from rltune_envs.guard_patience import GiveTime, Hand, Patience, no_alarm
from rltune_envs.guard_process import processes
from rltune_envs.guard_worker import Answer, Worker, attempt, exit_raises, this_thread

CALL_LIMIT_S = 30.0
"""Time limit of a call, in seconds, unless its class or function has a `time_limit_s`."""

SLOW_S = 5.0
"""A call that takes longer is reported to the supervisor, and then each second until it ends."""

IMPORT_LIMIT_S = 120.0
"""Time limit of the import of a module into a process of its own, in seconds."""

MAX_ABANDONED = 256
"""Threads that may hang at a time, over all batches; then no call is made any more."""

_GRACE_S = 15.0  # beyond the limit; then a process whose threads are all blocked is ended


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
        is_new: Whether this call is told for the first time.

    """

    what: str
    place: str
    seconds: float
    limit_s: float
    is_new: bool = True


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
    """The worker of a thread that calls."""

    worker: Worker | None = None


_local = _Local()


def release_worker() -> None:
    """End the worker of this thread, which calls no more."""
    if _local.worker is not None:
        _local.worker.end()
        _local.worker = None


@dataclass(slots=True)
class _Shared:
    """What the threads of one process share."""

    alarm: Alarm = field(default_factory=Alarm)
    lock: threading.Lock = field(default_factory=threading.Lock)
    abandoned: list[threading.Thread] = field(default_factory=list)


_shared = _Shared()


def _start_afresh() -> None:
    """Start afresh in a forked process, which does not have its parent's threads."""
    _local.worker = None
    _shared.alarm, _shared.lock, _shared.abandoned = Alarm(), threading.Lock(), []
    new_batch()


os.register_at_fork(after_in_child=_start_afresh)


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
    value = _checked(answer, what, module)
    if isinstance(value, CoroutineType):
        value.close()
        raise CustomCodeError(what, "it returned a coroutine; define it with def, not async def")
    return value


def call_in_process(
    what: str, path: str, *arguments: object, limit_s: float = CALL_LIMIT_S
) -> object:
    """Return what a custom function returns in another process, which can always be ended.

    Args:
        what: Its name in errors: `score my_score()`.
        path: Import path of the function.
        arguments: Its arguments. They are copied there, and the result back.
        limit_s: Time limit of the call, in seconds. The wait for a free process, and the import of
            the function's module, do not count.

    Raises:
        HungCodeError: It did not return in time, or earlier calls of this batch did not.
        CustomCodeError: It raised something, its process ended or cannot be started, or something
            cannot be copied.

    """
    current_batch().require_open(what, limit_s)
    module = path.partition(":")[0]
    with processes().borrow(what) as process:
        current_batch().require_open(what, limit_s)  # others may have hung in the meantime
        if process.load(what, path, limit_s=IMPORT_LIMIT_S):
            _checked(_answer_of(process, what, IMPORT_LIMIT_S, module), what, module)
        process.ask(what, *arguments, limit_s=limit_s)
        return _checked(_answer_of(process, what, limit_s, module), what, module)


def _checked(answer: Answer, what: str, module: str) -> object:
    if answer.error is not None:
        _raise(what, answer.error, module)
    return answer.value


def limit_of(home: object) -> float:
    """Return the time limit of a custom class or function, in seconds."""
    limit = getattr(home, "time_limit_s", CALL_LIMIT_S)
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    return float(limit) if is_number and limit > 0 else CALL_LIMIT_S


def _require_room(what: str, limit: float) -> None:
    """Refuse a call after too many that hung."""
    current_batch().require_open(what, limit)
    with _shared.lock:
        _shared.abandoned = [thread for thread in _shared.abandoned if thread.is_alive()]
        n_hanging = len(_shared.abandoned)
    if n_hanging >= MAX_ABANDONED:
        raise HungCodeError(what, f"not called: {MAX_ABANDONED} earlier calls still hang")


def _wait(what: str, function: Callable[[], object], limit: float, module: str) -> Answer:
    """Make a call in the worker of this thread."""
    _require_room(what, limit)
    worker = _local.worker = _local.worker or Worker()
    try:
        with _last_words(limit) as give_time:
            worker.ask(function)
            return _answer_of(worker, what, limit, module, give_time)
    except BaseException:  # it hangs; a signal; or a supervisor that gives up
        _abandon(worker)
        raise


def _answer_of(
    hand: Hand, what: str, limit: float, module: str, give_time: GiveTime = no_alarm
) -> Answer:
    """Return the answer of a call that was made.

    Time in which other calls compute, or held the interpreter, does not count.

    Raises:
        HungCodeError: There is none within the limit.

    """
    patience = Patience(hand, limit)
    answer, is_new = patience.answer(SLOW_S), True
    while answer is None and patience.left_s > 0:
        give_time(patience.left_s)  # this thread runs, so the interpreter is not held
        if patience.waited_s >= SLOW_S:
            _tell(Waiting(what, hand.place(module), patience.waited_s, limit, is_new))
            is_new = False
        answer = patience.answer(1.0)
    if answer is not None:
        return answer
    current_batch().count_hung()
    place = in_brackets(hand.place(module))
    raise HungCodeError(what, f"it did not return within {limit:g} s{place}")


def _tell(waiting: Waiting) -> None:
    if _supervision.on_slow is None:
        return
    try:
        _supervision.on_slow(waiting)
    except Exception as error:
        raise _SupervisorError(error) from error


def _abandon(worker: Worker) -> None:
    _local.worker = None
    worker.abandon()
    with _shared.lock:
        _shared.abandoned.append(worker.thread)


@contextmanager
def _last_words(limit: float) -> Iterator[GiveTime]:
    if _supervision.last_words is None:
        yield no_alarm
        return
    with _shared.alarm.within(min(limit, MAX_TIMER_S) + _GRACE_S) as give:
        yield lambda seconds: give(seconds + _GRACE_S)


def _raise(what: str, error: BaseException, module: str) -> NoReturn:
    """Raise the error of a call as a `CustomCodeError` that says where it happened."""
    if isinstance(error, CustomCodeError | SearchLimitError):
        raise error
    if isinstance(error, WrongResultError):
        raise CustomCodeError(what, str(error)) from error
    place = place_of(error, module)
    cause = f"it raised {describe_error(error)}{in_brackets(place)}"
    raise CustomCodeError(what, cause) from error
