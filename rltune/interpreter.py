"""Another Python process that imports what this one does."""

import os
import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module; `-P`: no file of the working folder stands in for one.

    Give the process `module_environment`: without it a checkout on the path would not be found.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with its import path, and with these variables."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, **variables}
