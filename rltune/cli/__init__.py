"""The `rltune` command. Torch and Ray are imported by the commands that need them, never before."""

from rltune.cli.entry import main

__all__ = ["main"]
