"""Processes that make calls of custom code, and can be ended whatever that code does.

The twin of `guard_worker`: no thread can end a runaway regular expression, a process can. There are
at most as many as cores. They start when they are first needed, and end with this process. All have
one hash seed, so that sets of texts have one order in each.
"""

import atexit
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from traceback import FrameSummary
from typing import Any

from rltune_envs.code_place import deepest, describe_error
from rltune_envs.errors import CustomCodeError
from rltune_envs.guard_worker import Answer

_CHILD = "rltune_envs.guard_child"
_TRACE_S = 5.0  # within which a process says where it is
_END_S = 5.0  # within which a process without a connection has ended
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


class Process:
    """A process that makes one call at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._trace = tempfile.TemporaryFile("ab+", buffering=0)  # noqa: SIM115 - end() closes it
        leash, self._leash = Pipe(duplex=False)  # the system tells it when this end closes
        handed = [theirs.fileno(), self._trace.fileno(), leash.fileno()]
        self._paths = _import_path()
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        with theirs, leash:
            try:
                self._process = _started(handed, self._paths)
            except OSError:  # too many processes, no memory
                self._close()
                raise
        self._what = ""
        self._is_asked = False
        self._path = ""
        self._is_loading = False

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a call, and finds what this process finds."""
        is_waiting = not self._is_asked and self._process.poll() is None
        return is_waiting and self._paths == _import_path()

    def load(self, what: str, path: str, *, limit_s: float) -> bool:
        """Have it import the function of the next calls; return whether an answer will come."""
        if path == self._path:
            return False
        self._path = path
        self._send(what, "load", path, limit_s)
        return True

    def ask(self, what: str, *arguments: object, limit_s: float) -> None:
        """Make a call; the one before must have been answered.

        Args:
            what: Its name in errors.
            arguments: Of the function that was loaded.
            limit_s: After so many seconds nobody waits for it any more.

        Raises:
            CustomCodeError: An argument cannot be copied.

        """
        self._send(what, "call", arguments, limit_s)

    def answer(self, wait_s: float) -> Answer | None:
        """Return the answer; None when there is none within so many seconds."""
        try:
            if not self._connection.poll(wait_s):
                return None
            message = self._connection.recv_bytes()
        except (EOFError, OSError):
            return Answer(error=CustomCodeError(self._what, self._ending()))
        try:
            value, cause = pickle.loads(message)
        except Exception as error:  # whatever a class raises while it is copied
            cause = f"it returned what cannot be copied here: {describe_error(error)}"
        self._is_asked = False
        if not cause:
            return Answer(value)
        if self._is_loading:
            self._path = ""
        return Answer(error=CustomCodeError(self._what, cause))

    def others_s(self) -> float:
        """Return 0: no thread of this process keeps it from running."""
        return 0.0

    def _ending(self) -> str:
        """Return why no answer will come."""
        try:
            return f"its process ended {_way(self._process.wait(_END_S))}"
        except subprocess.TimeoutExpired:
            return "it closed the files of its process, and with them the way to answer"

    def place(self, module: str) -> str:
        """Return where its call is: `FILE:LINE, in NAME`; empty where it does not say."""
        start = os.fstat(self._trace.fileno()).st_size
        if not start:
            return ""  # it still starts, and would die of the signal
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        before, text, until = "", "", time.monotonic() + _TRACE_S
        while (not text or text != before) and time.monotonic() < until:
            time.sleep(0.01)
            written = os.pread(self._trace.fileno(), 2**16, start)
            before, text = text, written.decode(errors="replace")
        frames = [FrameSummary(file, int(line), name) for file, line, name in _FRAME.findall(text)]
        return deepest(frames[::-1], module)

    def end(self) -> None:
        """End it, with what its calls started."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self._connection.close()
        self._trace.close()
        self._leash.close()

    def _send(self, what: str, verb: str, argument: object, limit_s: float) -> None:
        self._what, self._is_loading = what, verb == "load"
        try:
            message = pickle.dumps((verb, argument, limit_s))
        except Exception as error:  # whatever a class raises while it is copied
            cause = f"its arguments cannot be copied to a process: {describe_error(error)}"
            raise CustomCodeError(what, cause) from error
        self._is_asked = True
        with suppress(ConnectionError):  # it died: there will be no answer
            self._connection.send_bytes(message)


def _started(handed: list[int], paths: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _CHILD, *map(str, handed), str(os.getpid())],
        pass_fds=handed,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"},
        start_new_session=True,  # what its calls start ends with it
    )


def _import_path() -> str:
    """Return where this process looks for modules; an empty entry is the working folder."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


def _way(status: int) -> str:
    """Return how a process ended."""
    names = {number.value: number.name for number in signal.Signals}
    return f"by {names.get(-status, -status)}" if status < 0 else f"with exit status {status}"


def _new(what: str) -> Process:
    try:
        return Process()
    except OSError as error:
        cause = f"no process can be started for it: {describe_error(error)}"
        raise CustomCodeError(what, cause) from error


class Processes:
    """The processes of this one, lent to one caller at a time.

    Args:
        most: How many there may be.

    """

    def __init__(self, most: int) -> None:
        self._room = threading.BoundedSemaphore(most)
        self._idle: list[Process] = []

    @contextmanager
    def borrow(self, what: str = "") -> Iterator[Process]:
        """Lend a process, once one is free. One that still runs a call afterwards is ended.

        Raises:
            CustomCodeError: None can be started for `what` is to be called.

        """
        with self._room:
            process = self._take(what)
            try:
                yield process
            finally:
                if process.is_idle:
                    self._idle.append(process)
                else:
                    process.end()

    def _take(self, what: str) -> Process:
        while True:
            try:
                process = self._idle.pop()
            except IndexError:
                return _new(what)
            if process.is_idle:
                return process
            process.end()

    def end(self) -> None:
        """End those that wait for a call."""
        while self._idle:
            self._idle.pop().end()


class _Own:
    """The processes that this process started; a forked one has none."""

    processes: Processes

    def start_afresh(self) -> None:
        self.processes = Processes(len(os.sched_getaffinity(0)))


_own = _Own()
_own.start_afresh()
os.register_at_fork(after_in_child=_own.start_afresh)
atexit.register(lambda: _own.processes.end())


def processes() -> Processes:
    """Return the processes that make calls for this one."""
    return _own.processes
