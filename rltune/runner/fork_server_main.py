"""The fork server's process: `python -m rltune.runner.fork_server_main serve LISTENER`.

It imports what every task imports, computes nothing and starts no thread, so that a fork of it is
as good as a new process. Standard input is the leash of its driver: when that closes, the tasks
are killed and the process ends. A worker that hangs up has its task killed.
"""

import faulthandler
import gc
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait

from rltune.interpreter import ending_with, module_command
from rltune.runner.fork_server import MAIN, ForkJob
from rltune.runner.provenance import source_digest, versions

_LEASH = 0
_PAUSE_S = 0.1

Software = tuple[str, dict[str, str]]


class _Tasks:
    """The tasks that run, each with the connection to the worker that waits for it."""

    def __init__(self) -> None:
        self._workers: dict[int, Connection] = {}  # process -> its worker
        self._orphans: set[int] = set()  # processes whose worker hung up
        self.bell, ring = os.pipe()  # rung when a process has ended
        os.set_blocking(ring, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)

    @property
    def workers(self) -> list[Connection]:
        """Connections on which a worker may hang up."""
        return [own for process, own in self._workers.items() if process not in self._orphans]

    def add(self, process: int, worker: Connection) -> None:
        """Note a task."""
        self._workers[process] = worker

    def reap(self) -> None:
        """Hang up on the workers whose tasks have ended."""
        os.read(self.bell, 4096)
        for process in list(self._workers):
            if _has_ended(process):
                self._orphans.discard(process)
                _hang_up(self._workers.pop(process))

    def kill(self, worker: Connection) -> None:
        """Kill the task of a worker that hung up."""
        for process, own in self._workers.items():
            if own is worker:
                self._orphans.add(process)
                os.kill(process, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill all tasks, and wait for their ends."""
        for process in self._workers:
            os.kill(process, signal.SIGKILL)
        for process in self._workers:
            _has_ended(process, wait=True)

    def forget(self) -> None:
        """Give up what belongs to the server: this is a fork of it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.bell)
        for worker in self._workers.values():
            worker.close()


def _has_ended(process: int, *, wait: bool = False) -> bool:
    """Tell whether a task has ended; if so, end what it started and left in its group, and reap it.

    In this order: until it is reaped, its number means no other process and no other group.
    """
    options = os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)
    if os.waitid(os.P_PID, process, options) is None:
        return False
    with suppress(ProcessLookupError):  # it ended before it had a group of its own
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return True


def _hang_up(worker: Connection) -> None:
    """End a connection, although a fork that the task left may hold it, too."""
    shared = socket.socket(fileno=worker.fileno())
    with suppress(OSError):  # it hung up first
        shared.shutdown(socket.SHUT_RDWR)
    shared.detach()
    worker.close()


class _Door:
    """The socket on which workers ask, and a file in reserve: a refusal needs one, too."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self._reserve = socket.socket()  # any file will do

    def accept(self) -> tuple[bytes, Connection] | None:
        """Return a job and its worker; None when that is gone already, or had to be refused."""
        try:
            return _asked(self.listener)
        except OSError as error:  # too many open files: that is one task's problem
            self._refuse(error)
            return None

    def _refuse(self, error: OSError) -> None:
        self._reserve.close()
        try:
            if asked := _asked(self.listener):
                _tell(asked[1], error)
        except OSError:  # the whole machine has no file left; the worker waits in line
            time.sleep(_PAUSE_S)
        finally:
            with suppress(OSError):
                self._reserve = socket.socket()

    def close(self) -> None:
        """Give up what belongs to the server: this is a fork of it."""
        self.listener.close()
        self._reserve.close()


def _asked(listener: socket.socket) -> tuple[bytes, Connection] | None:
    """Return the job of the next worker in line, which opens one file; None when it is gone.

    Raises:
        OSError: No file can be opened; the worker is still in line.

    """
    accepted, _ = listener.accept()
    worker = Connection(accepted.detach())
    try:
        return worker.recv_bytes(), worker
    except (EOFError, OSError):
        worker.close()
        return None


def serve(listener: socket.socket) -> tuple[bytes, Connection] | None:
    """Fork for each job. Returns in each fork, with its job and worker; None when all is over."""
    tasks, door, server = _Tasks(), _Door(listener), os.getpid()
    while True:
        for ready in wait([_LEASH, tasks.bell, listener, *tasks.workers]):
            if ready == _LEASH:
                tasks.kill_all()
                return None
            if ready == tasks.bell:
                tasks.reap()
            elif isinstance(ready, Connection):
                tasks.kill(ready)
            elif asked := door.accept():
                try:
                    process = os.fork()
                except OSError as error:  # no process or memory is left: that is one task's problem
                    _tell(asked[1], error)
                    continue
                if process:
                    tasks.add(process, asked[1])
                    continue
                ending_with(server)()
                tasks.forget()
                door.close()
                return asked


def _tell(worker: Connection, error: Exception | None) -> None:
    """Tell a worker how its task ended."""
    with suppress(BrokenPipeError), worker:
        worker.send(f"{type(error).__name__}: {error}" if error else "")


def software() -> Software:
    """Return what the files on disk are now: rltune's sources, and the versions of packages."""
    return source_digest(), versions()


def _run(request: bytes, worker: Connection) -> None:
    """Run the task of a job, and tell its worker that it is done."""
    job: ForkJob = pickle.loads(request)
    faulthandler.enable(all_threads=False)  # as Ray does in its workers
    problem = None
    try:
        job.set_up()()
    except Exception as error:
        problem = error
    _tell(worker, problem)


def _run_afresh(request: bytes, worker: Connection) -> None:
    """Become a new interpreter that runs the job: what was imported is not on disk any more."""
    job = os.memfd_create("job")
    os.write(job, request)
    for descriptor in (job, worker.fileno()):
        os.set_inheritable(descriptor, True)
    command = module_command(MAIN, "run", str(worker.fileno()), str(job))
    os.execv(command[0], command)


def main(arguments: Sequence[str]) -> None:
    """Serve, and in each fork run a task; or run the one that is given."""
    mode, descriptor, *rest = arguments
    os.set_inheritable(int(descriptor), False)
    if mode == "run":
        with open(int(rest[0]), "rb") as job:
            job.seek(0)
            request = job.read()
        _run(request, Connection(int(descriptor)))
        return
    loaded = software()
    for name in rest:
        with suppress(Exception):  # each task meets it again, and says so
            import_module(name)
    gc.freeze()  # the collector leaves these pages alone, so that forks go on sharing them
    if asked := serve(socket.socket(fileno=int(descriptor))):
        _leave_server()
        run = _run if software() == loaded else _run_afresh
        run(*asked)


def _leave_server() -> None:
    """Be a process of its own: no input, another group, other random numbers."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _LEASH)
    os.close(nothing)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # custom code may draw from it; `random` sees to that itself


if __name__ == "__main__":
    main(sys.argv[1:])
