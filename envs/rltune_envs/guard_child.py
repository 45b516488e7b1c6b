"""The other end of `guard_process`: imports a function, and calls it, as often as it is told.

An answer is a value and an empty text, or None and what went wrong.
"""

import faulthandler
import fcntl
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from types import CoroutineType
from typing import Any, NoReturn

from rltune_envs.code_place import describe_error, in_brackets, place_of
from rltune_envs.guard_worker import attempt
from rltune_envs.imports import load_object

_MORE_S = 60.0  # beyond the limit; then nobody is there who would have ended this process
_MAX_S = 1e8
_WATCH_S = 1.0


def main() -> None:
    """Serve.

    Arguments: descriptors of a socket, of a file for tracebacks, and of a pipe whose other end the
    caller holds; the caller's pid.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when this process ends
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    threading.Thread(target=_die_with, args=(int(sys.argv[4]),), daemon=True).start()
    _end_with(int(sys.argv[3]))
    trace = int(sys.argv[2])
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=False)
    os.write(trace, b"\n")  # from now on it may be asked where it is
    try:
        _serve(connection)
    except (EOFError, ConnectionError):
        os._exit(0)  # the caller is done


def _serve(connection: "Connection[Any, Any]") -> None:
    function: Callable[..., object] | None = None
    module, process = "", os.getpid()
    while True:
        message = connection.recv_bytes()
        answer = attempt(partial(_do, message, function))
        if os.getpid() != process:  # the call forked, and its child returned, too
            os._exit(0)
        if answer.error is not None:
            connection.send_bytes(pickle.dumps((None, _cause(answer.error, module))))
        elif isinstance(answer.value, _Loaded):
            function, module = answer.value.function, answer.value.module
            connection.send_bytes(pickle.dumps((None, "")))
        else:
            connection.send_bytes(_packed(answer.value))


class _Loaded:
    """A function, and the module that it is from."""

    def __init__(self, path: str) -> None:
        self.function = load_object(path)
        self.module = path.partition(":")[0]


def _do(message: bytes, function: Callable[..., object] | None) -> object:
    verb, given, limit_s = pickle.loads(message)
    _limit_cpu(limit_s + _MORE_S)
    if verb == "load":
        return _Loaded(given)
    assert function is not None
    return function(*given)


def _cause(error: BaseException, module: str) -> str:
    return f"it raised {describe_error(error)}{in_brackets(place_of(error, module))}"


def _packed(value: object) -> bytes:
    """Return a value as an answer; what cannot be copied is told."""
    if isinstance(value, CoroutineType):
        value.close()
        return pickle.dumps((None, "it returned a coroutine; define it with def, not async def"))
    try:
        return pickle.dumps((value, ""))
    except Exception as error:  # whatever a class raises while it is copied
        cause = f"it returned a {type(value).__name__}, which cannot be copied: "
        return pickle.dumps((None, cause + describe_error(error)))


def _limit_cpu(seconds: float) -> None:
    """Give the next call so many seconds of all cores; the system ends this process beyond."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(time.process_time() + min(seconds, _MAX_S) * len(os.sched_getaffinity(0)))
    is_lower = most == resource.RLIM_INFINITY or limit < most
    resource.setrlimit(resource.RLIMIT_CPU, (limit if is_lower else most, most))


def _end_with(leash: int) -> None:
    """Have the system end this process by SIGIO once the other end of a pipe has closed.

    It does so also while a call never releases the interpreter, when no thread can look.
    """
    fcntl.fcntl(leash, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(leash, fcntl.F_SETFL, os.O_RDONLY | os.O_ASYNC)


def _die_with(caller: int) -> NoReturn:
    """End this process when its caller is gone, also where a fork of it still holds the pipe."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # the call's thread takes it
    while os.getppid() == caller:
        time.sleep(_WATCH_S)
    os._exit(1)


if __name__ == "__main__":
    main()
