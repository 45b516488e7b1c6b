"""Tasks for forks of a fork server, and a worker that asks for one.

python fork_tasks.py SOCKET NAME ARGUMENT...
"""

import json
import os
import subprocess
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


def start_worker(address, name, *arguments, **options):
    """Start a process that asks for a task."""
    command = [sys.executable, __file__, str(address), name, *map(str, arguments)]
    path = os.pathsep.join(sys.path)
    environ = {**os.environ, "PYTHONPATH": path, **options.pop("environ", {})}
    return subprocess.Popen(command, env=environ, **options)


if __name__ == "__main__":
    # Not `__main__.describe`: the fork imports it by the name of this file.
    task = getattr(__import__("fork_tasks"), sys.argv[2])
    run_forked(partial(task, *sys.argv[3:]), Path(sys.argv[1]))
