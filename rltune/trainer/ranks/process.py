"""A rank as the first one sees it: a process that it started, and what that tells."""

import os
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from rltune.interpreter import module_command, module_environment

_CHILD = "rltune.trainer.ranks.child"
STACKS = signal.SIGUSR1
"""At this signal a rank writes where each of its threads is, to what it writes errors to."""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank that this process started."""

    number: int
    process: "subprocess.Popen[bytes]"
    connection: "Connection[Any, Any]"
    beats: int  # descriptor that its signs of life are read from
    errors: Path  # what it writes to stderr
    told: list[Exception] = field(default_factory=list)  # why it ends, by itself

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self.process.poll() is not None

    @property
    def written(self) -> str:
        """What it has written to stderr."""
        return self.errors.read_text(encoding="utf-8", errors="replace").strip()

    def hear(self) -> None:
        """Wait for it to say that it goes on; raise what it says that it ends by."""
        message = self.connection.recv()
        if isinstance(message, Exception):
            self.told.append(message)
            raise message

    def last_message(self) -> Exception | None:
        """Return the error that it told before it ended; None when it told none."""
        with suppress(EOFError, OSError, RuntimeError):
            while self.connection.poll(0):
                self.hear()
        return self.told[0] if self.told else None

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        os.close(self.beats)
        assert self.process.stdin is not None
        self.process.stdin.close()


def start_rank(number: int, folder: Path) -> RankProcess:
    """Start a rank, which waits for its setup.

    Args:
        number: From 1; the first rank, 0, is this process.
        folder: Of the ranks of this trial.

    """
    ours, theirs = socket.socketpair()
    heard, beaten = os.pipe()
    os.set_blocking(heard, False)
    path = folder / f"stderr-{number}"
    with theirs, open(beaten, "wb"), path.open("wb") as errors:
        process = subprocess.Popen(
            module_command(_CHILD, str(theirs.fileno()), str(beaten), str(folder)),
            pass_fds=[theirs.fileno(), beaten],
            stdin=subprocess.PIPE,  # its leash: it ends with this process
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=module_environment(OMP_NUM_THREADS=str(torch.get_num_threads())),
            start_new_session=True,  # Ctrl-C is for the trial, which may want one more step
        )
    return RankProcess(number, process, Connection(ours.detach()), heard, path)
