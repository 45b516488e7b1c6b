"""A thread that makes one call after the other, and can be left alone with one that hangs."""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue


class Here(threading.local):
    """What is known of the thread that asks."""

    is_worker = False


here = Here()


class Stopped(BaseException):
    """Raised inside a call that nobody waits for any more."""


@dataclass(slots=True)
class Answer:
    """What a call came to: a value, or what it raised."""

    value: object = None
    error: BaseException | None = None


class Worker:
    """A thread that makes calls. Once it is left alone it ends with the call that it makes."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._is_left = False
        self.thread = threading.Thread(target=self._run, name="custom code", daemon=True)
        self.thread.start()

    def ask(self, call: Callable[[], object]) -> None:
        """Make a call; the one before has been answered."""
        self._calls.put(call)

    def answer(self, wait_s: float) -> Answer | None:
        """Return the answer; None where it does not come within so many seconds."""
        try:
            return self._answers.get(timeout=wait_s)
        except Empty:
            return None

    def leave(self) -> None:
        """Wait no more. Python code is interrupted; what waits in C ends when it returns."""
        self._is_left = True
        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Stopped))
        self._calls.put(lambda: None)  # it may have returned just now, and wait for the next

    def _run(self) -> None:
        here.is_worker = True
        try:
            while not self._is_left:
                self._answers.put(attempt(self._calls.get()))
        except Stopped:
            return


def attempt(call: Callable[[], object]) -> Answer:
    """Make a call here and now."""
    try:
        return Answer(call())
    except BaseException as error:  # sys.exit and KeyboardInterrupt, too: they are the call's own
        return Answer(error=error)
