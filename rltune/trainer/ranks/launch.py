"""The ranks of a trial as processes: the trial's own is the first, which starts the others.

They wait for calls, each of which all ranks make together. They end with the trial, however it
ends; a rank that ends before the trial ends the trial, by name.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from rltune.errors import RankDiedError, RltuneError
from rltune.interpreter import module_command, module_environment
from rltune.spec.schema.run import ranks_of
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.ranks.group import ALONE, Group, Ranks
from rltune.trainer.ranks.join import RankSetup, join

P = ParamSpec("P")
T = TypeVar("T")

_CHILD = "rltune.trainer.ranks.child"
_END_S = 10.0  # a rank that was told to end, or whose end explains an error, has so long
_LAST_WORDS = 2000  # characters


@contextmanager
def ranks_for(config: TrialConfig, *, trial: Path, base: Path) -> Iterator[Group]:
    """Yield the group of a trial, of which this process is the first rank; end the others.

    Args:
        config: Resolved config.
        trial: The trial's folder.
        base: Folder to which relative paths in the config refer.

    Raises:
        RankDiedError: A rank ended at its start.

    """
    size = ranks_of(config.resources)
    if size == 1:
        yield ALONE
        return
    folder = Path(tempfile.mkdtemp(prefix="rltune-ranks-"))
    others = _Others([])
    try:
        for rank in range(1, size):
            others.ranks.append(_start(rank, folder))
        setups = [RankSetup(n, size, config, trial, base, folder) for n in range(size)]
        for other, setup in zip(others.ranks, setups[1:], strict=True):
            with others.watched("the start"):
                other.connection.send(setup)
        for other in others.ranks:  # each has loaded its weights
            with others.watched("the start"):
                _hear(other)
        with others.watched("the start"):
            device = join(setups[0])
        yield FirstRank(device, others)
        others.finish()
    finally:
        others.end()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Rank:
    """A rank that this process started."""

    number: int
    process: "subprocess.Popen[bytes]"
    connection: "Connection[Any, Any]"
    errors: Path  # what it writes to stderr
    told: list[Exception] = field(default_factory=list)  # why it ends, by itself


def _start(rank: int, folder: Path) -> _Rank:
    ours, theirs = socket.socketpair()
    path = folder / f"stderr-{rank}"
    with theirs, path.open("wb") as errors:
        process = subprocess.Popen(
            module_command(_CHILD, str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,  # its leash: it ends with this process
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=module_environment(OMP_NUM_THREADS=str(torch.get_num_threads())),
            start_new_session=True,  # Ctrl-C is for the trial, which may want one more step
        )
    return _Rank(rank, process, Connection(ours.detach()), path)


class _Others:
    """The ranks that this process started."""

    def __init__(self, ranks: list[_Rank]) -> None:
        self.ranks = ranks

    def send(self, message: bytes) -> None:
        """Send a message to each."""
        for rank in self.ranks:
            rank.connection.send_bytes(message)

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Name the rank whose end explains an error of the code inside.

        What rltune raises on purpose stays: every rank computes it.
        """
        try:
            yield
        except RltuneError:
            raise
        except Exception as error:
            died = self._died(what)
            if died is None:
                raise
            raise died from error

    def _died(self, what: str) -> RankDiedError | None:
        """Return what the end of a rank says; None when all go on, or only followed this one.

        Who ended without a word was the first to end; the others lost it.
        """
        until = time.monotonic() + _END_S
        while all(rank.process.poll() is None for rank in self.ranks):
            if time.monotonic() > until:
                return None
            time.sleep(0.05)
        time.sleep(0.2)  # who was killed may come second to be seen
        ended = [rank for rank in self.ranks if rank.process.poll() is not None]
        told = [(rank, _last_message(rank)) for rank in ended]
        first, error = min(told, key=lambda own: (own[1] is not None, is_consequence(own[1])))
        return _died_error(first, error, what, size=len(self.ranks) + 1)

    def finish(self) -> None:
        """Have all end by themselves."""
        with suppress(OSError):
            self.send(b"")
        until = time.monotonic() + _END_S
        for rank in self.ranks:
            with suppress(subprocess.TimeoutExpired):
                rank.process.wait(max(0.0, until - time.monotonic()))

    def end(self) -> None:
        """End those that are still there."""
        for rank in self.ranks:
            rank.process.kill()
            rank.process.wait()
            rank.connection.close()
            assert rank.process.stdin is not None
            rank.process.stdin.close()


def _hear(rank: _Rank) -> None:
    """Wait for a rank to say that it goes on; raise what it says that it ends by."""
    message = rank.connection.recv()
    if isinstance(message, Exception):
        rank.told.append(message)
        raise message


def _last_message(rank: _Rank) -> Exception | None:
    """Return the error that a rank told before it ended; None when it told none."""
    with suppress(EOFError, OSError, RuntimeError):
        while rank.connection.poll(0):
            _hear(rank)
    return rank.told[0] if rank.told else None


def is_consequence(error: Exception | None) -> bool:
    """Tell whether an error is what a rank sees when another one has ended."""
    return error is not None and "gloo" in str(error).lower()


def _died_error(rank: _Rank, error: Exception | None, what: str, *, size: int) -> RankDiedError:
    code = rank.process.returncode
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    why = f": {str(error).splitlines()[0]}" if error is not None else ""
    died = RankDiedError(
        f"rank {rank.number} of {size} (process {rank.process.pid}) ended {how} in {what}{why}. If "
        "it was killed for its memory (see `dmesg`), lower optim.tokens_per_micro_batch. The same "
        "command goes on from the last checkpoint"
    )
    words = rank.errors.read_text(encoding="utf-8", errors="replace").strip()
    for note in (words[-_LAST_WORDS:], "\n".join(getattr(error, "__notes__", ()))):
        if note:  # for the trial's log; the line for people has no room for them
            died.add_note(f"Its last words:\n{note}")
    return died


class FirstRank(Ranks):
    """The rank of the trial's own process, whose calls the others make with it.

    Args:
        device: Of this rank's tensors.
        others: The other ranks.

    """

    def __init__(self, device: torch.device, others: _Others) -> None:
        with others.watched("the start"):
            super().__init__(device)
        self._others = others

    def everywhere(
        self, what: str, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Call a function on all ranks; return what it returns here.

        Raises:
            RankDiedError: A rank ended; it is named.

        """
        message = BytesIO()
        torch.save((function, args[1:], named), message)  # the state is there
        with self._others.watched(what):
            self._others.send(message.getvalue())
            return function(*args, **named)
