"""Start each trial of a launch as a fork of one process that has imported torch.

The driver holds a `ForkServer`; a Ray worker calls `run_forked` and waits, so Ray sees the trial
live and die as if the worker itself ran it. `fork_server_main` is the process. Linux only.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from rltune.interpreter import module_command, module_environment
from rltune.runner.orphan_cleanup import MARK
from rltune.runner.process import THREAD_VARIABLES
from rltune.runner.trial import TrialPayload

Task = Callable[[], object]

SOCKET = "forks"
MAIN = "rltune.runner.fork_server_main"
PRELOAD = (
    "rltune.trainer.engines",
    "rltune.trainer.loop",
    "rltune.trainer.preflight.learnable",
    "rltune.trainer.prompt",
    "rltune.trainer.start",
)
"""What every trial on a CPU imports. Nothing that starts a thread: wandb and pandas do."""
GONE = (
    "the process that starts the trials of this launch is gone: it was killed or ran out of memory "
    "(see `dmesg`). The same command goes on"
)
_END_S = 10.0  # for threads and exit handlers of a task that is done; then its process is killed
_CLOSE_S = 2.0
_OOM_SCORE = Path("/proc/self/oom_score_adj")


@dataclass(frozen=True, slots=True)
class ForkJob:
    """A task, and how its process differs from the fork server's. Picklable."""

    task: bytes  # pickled: unpickling may import from `path`
    environ: dict[str, str]
    path: list[str]  # `sys.path`
    cwd: str
    niceness: int
    oom_score: str  # content of oom_score_adj: which process the system kills first; may be empty

    @classmethod
    def like_this_process(cls, task: Task) -> "ForkJob":
        """Return the job whose process is set up as the calling one, without a GPU."""
        return cls(
            task=pickle.dumps(task),
            environ={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            path=list(sys.path),
            cwd=os.getcwd(),
            niceness=os.getpriority(os.PRIO_PROCESS, 0),
            oom_score=_OOM_SCORE.read_text(encoding="ascii") if _OOM_SCORE.exists() else "",
        )

    def set_up(self) -> Task:
        """Make the calling process like the one that asked, and return the task."""
        os.environ.clear()
        os.environ.update(self.environ)
        tempfile.tempdir = None  # it is read from the environment once
        sys.path[:] = self.path
        os.chdir(self.cwd)
        with suppress(OSError):  # both are for the machine's sake; some containers forbid them
            os.setpriority(os.PRIO_PROCESS, 0, self.niceness)
            _OOM_SCORE.write_text(self.oom_score, encoding="ascii")
        task: Task = pickle.loads(self.task)
        return task


def threads_to_fork(payloads: Sequence[TrialPayload], address: str | None) -> int | None:
    """Return the threads of the trials; None when they cannot be forks of one process.

    Torch reads its threads when it is imported, so all must agree. A process that has touched a
    GPU cannot be forked, and other machines of a cluster have no fork server.
    """
    resources = [payload.spec.config["resources"] for payload in payloads]
    threads = {int(own["threads"]) for own in resources}
    is_possible = sys.platform == "linux" and address is None and len(threads) == 1
    if not is_possible or any(own["gpus"] for own in resources):
        return None
    return threads.pop()


class ForkServer:
    """The fork server of a launch. It begins to import at once; who asks early waits.

    Args:
        folder: Private folder with a short path, for the socket; names the cluster.
        threads: Threads of each task.
        preload: Modules to import before the first fork.

    """

    def __init__(self, folder: Path, threads: int, preload: Sequence[str] = PRELOAD) -> None:
        self.address = folder / SOCKET
        variables = dict.fromkeys(THREAD_VARIABLES, str(threads))
        variables |= {"CUDA_VISIBLE_DEVICES": "", MARK: str(folder)}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.address))
            listener.listen(socket.SOMAXCONN)
            self._process = subprocess.Popen(
                module_command(MAIN, "serve", str(listener.fileno()), *preload),
                env=module_environment(**variables),
                stdin=subprocess.PIPE,  # its leash: it ends with this process
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C is for the driver, which asks trials to stop
            )

    def __enter__(self) -> Self:
        """Return this server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it; tasks that still run are killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:  # it still imports; or a task cannot be ended just now
            self._process.kill()
            self._process.wait()


class TaskError(RuntimeError):
    """What a task raised in its fork, with the name of the exception; or why it was not started."""


def run_forked(task: Task, address: Path) -> None:
    """Run a task in a fork of the server that is set up as this process, and wait for its end.

    If that process dies, this one dies, too: whoever watches it sees what happened.

    Args:
        task: Called there. Picklable; what it returns is lost.
        address: Socket of the fork server.

    Raises:
        TaskError: The task raised, or the fork server is gone.

    """
    job = pickle.dumps(ForkJob.like_this_process(task))
    with _asked(job, address) as server:
        try:
            problem = server.recv()
        except (EOFError, ConnectionResetError):
            _die()
        server.poll(_END_S)  # its end; whatever still holds it up is killed as we hang up
    if problem:
        raise TaskError(problem)


def _asked(job: bytes, address: Path) -> Connection:
    """Return a connection to the fork server, which has the job.

    Raises:
        TaskError: The fork server is gone.

    """
    try:
        server = Client(str(address))
        server.send_bytes(job)
    except OSError as error:
        raise TaskError(f"{GONE} ({error.strerror})") from error
    return server


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
