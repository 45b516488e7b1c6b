"""Tasks for forks of a fork server, and a worker that asks for one."""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from rltune.runner.fork_server import run_forked

MARKS = []


def describe(path):
    """Write what a task sees of its process, and leave marks for whoever might come next."""
    import numpy as np

    state = {
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "threads": threading.active_count(),
        "variable": os.environ.get("OF_WORKER"),
        "left": [*MARKS, os.environ.get("OF_TASK"), "colorsys" in sys.modules],
        "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
        "openmp": os.environ.get("OMP_NUM_THREADS"),
        "temporary": tempfile.gettempdir(),
        "cwd": os.getcwd(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "input": os.readlink("/proc/self/fd/0"),
        "draw": float(np.random.random()),
    }
    MARKS.append("mark")
    os.environ["OF_TASK"] = "1"
    __import__("colorsys")
    Path(path).write_text(json.dumps(state))


def sleep(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def leave_thread(path):
    """End although a thread never does."""
    Path(path).write_text(str(os.getpid()))
    threading.Thread(target=time.sleep, args=(600,)).start()


def leave_child(path, apart=False):
    """End with a fork that holds every descriptor of this process; maybe in its own session."""
    if os.fork():
        while not Path(path).exists():
            time.sleep(0.01)
    else:
        if apart:
            os.setsid()
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)


def fail(path):
    raise ValueError(f"no marker in {path}")


def exit_at_once(path):
    os._exit(3)


class Worker:
    """A process that asks for a task, as Ray's workers do: a fork of this one, made in no time.

    Args:
        address: Socket of the fork server.
        name: Function of this module.
        arguments: Of the function.
        cwd: Its working folder; that of this process where None.
        environ: Variables that it has besides those of this process.
        niceness: How much nicer it is than this process.

    """

    def __init__(self, address, name, *arguments, cwd=None, environ=(), niceness=0):
        self._code = None
        self.pid = os.fork()
        if self.pid:
            return
        try:
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the leash of a server among them
            os.environ.update(environ)
            os.chdir(cwd or os.getcwd())
            os.nice(niceness)
            run_forked(partial(globals()[name], *map(str, arguments)), Path(address))
        except BaseException:
            os._exit(1)
        os._exit(0)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        """Return its exit code, or minus the signal that ended it."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code
