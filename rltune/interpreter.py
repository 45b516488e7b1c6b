"""Another Python process that imports what this one does."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # of prctl


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module; `-P`: no file of the working folder stands in for one.

    Give the process `module_environment`: without it a checkout on the path would not be found.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with its import path, and with these variables."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, **variables}


def ending_with(parent: int) -> Callable[[], None]:
    """Return what a forked child calls first, so that it is killed when its parent ends.

    However the parent ends, by SIGKILL too. Only Linux can do it; elsewhere nothing is changed.

    Args:
        parent: Process id. Its thread that forks must live as long as the child may.

    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def end_with() -> None:
        if libc is None:
            return
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)

    return end_with
