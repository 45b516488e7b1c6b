"""A thread that makes one call after another, and can be abandoned when one hangs."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NoReturn

from rltune_envs.code_place import place_of_thread


class _ThisThread(threading.local):
    is_worker = False


this_thread = _ThisThread()
"""The calling thread: whether it is a worker."""


class _Abandoned(BaseException):
    """Raised inside a call that nobody waits for any more."""


@contextmanager
def exit_raises(is_custom: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Make `os._exit` raise SystemExit where custom code calls it, but not in a forked child.

    It would end the process without a word about what ended it.

    Args:
        is_custom: Whether custom code is calling.

    """
    exit_process, process = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() == process and is_custom():
            raise SystemExit(f"os._exit({status})")
        exit_process(status)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = exit_process


@dataclass(slots=True)
class Answer:
    """The result of a call: a value, or what it raised."""

    value: object = None
    error: BaseException | None = None


class Worker:
    """A thread that makes calls. Once abandoned, it ends with its present call."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._is_abandoned = False
        self._clock: int | None = None  # of the CPU time of the thread
        self.thread = threading.Thread(target=self._run, name="custom code", daemon=True)
        self.thread.start()

    def ask(self, call: Callable[[], object]) -> None:
        """Make a call; the one before must have been answered."""
        self._calls.put(call)

    def answer(self, wait_s: float) -> Answer | None:
        """Return the answer; None when there is none within so many seconds."""
        try:
            return self._answers.get(timeout=wait_s)
        except Empty:
            return None

    def others_s(self) -> float:
        """Return the CPU time, in seconds, that all other threads of this process have used."""
        own = 0.0 if self._clock is None else time.clock_gettime(self._clock)
        return time.process_time() - own

    def place(self, module: str) -> str:
        """Return where the thread is: `FILE:LINE, in NAME`; see `code_place`."""
        return place_of_thread(self.thread, module)

    def end(self) -> None:
        """End the thread; the call before must have been answered."""
        self._is_abandoned = True
        self._calls.put(lambda: None)

    def abandon(self) -> None:
        """Stop waiting. Python code is interrupted; C code ends when it returns."""
        self._is_abandoned = True
        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_Abandoned))
        self._calls.put(lambda: None)  # it may have returned just now and wait for another call

    def _run(self) -> None:
        this_thread.is_worker = True
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        process = os.getpid()
        try:
            while not self._is_abandoned:
                answer = attempt(self._calls.get())
                if os.getpid() != process:  # the call forked, and its child returned, too
                    os._exit(0)
                self._answers.put(answer)
        except _Abandoned:
            return


def attempt(call: Callable[[], object]) -> Answer:
    """Make a call in this thread."""
    try:
        return Answer(call())
    except BaseException as error:  # sys.exit and KeyboardInterrupt, too, belong to the call
        return Answer(error=error)
