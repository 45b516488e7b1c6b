"""`rltune init --task`: from a file of problems to a sweep, and a policy that can read it."""

from rltune.cli.init_task.problems import Asked
from rltune.cli.init_task.write import write_task

__all__ = ["Asked", "write_task"]
