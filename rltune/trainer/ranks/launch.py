"""The ranks of a trial as processes: the trial's own is the first, which starts the others.

They wait for calls, each of which all ranks make together. They end with the trial, however it
ends; a rank that ends before the trial ends the trial, by name.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
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
from rltune.trainer.ranks.watch import BEAT_S, SILENT_BEATS, Watch

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
    others = _Others()
    try:
        for rank in range(1, size):
            others.ranks.append(_start(rank, folder))
        others.begin_watch()
        setups = [RankSetup(n, size, config, trial, base, folder) for n in range(size)]
        for other, setup in zip(others.ranks, setups[1:], strict=True):
            with others.watched("the start"):
                other.connection.send(setup)
        for other in others.ranks:  # each has loaded its weights
            with others.watched("the start"):
                _hear(other)
        with others.watched("the start"):
            _meet(setups[0], others)
        yield FirstRank(setups[0].device, others)
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
    beats: int  # descriptor that its signs of life are read from
    errors: Path  # what it writes to stderr
    told: list[Exception] = field(default_factory=list)  # why it ends, by itself


def _start(rank: int, folder: Path) -> _Rank:
    ours, theirs = socket.socketpair()
    heard, beaten = os.pipe()
    os.set_blocking(heard, False)
    path = folder / f"stderr-{rank}"
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
    return _Rank(rank, process, Connection(ours.detach()), heard, path)


def _meet(setup: RankSetup, others: "_Others") -> None:
    """Join the other ranks.

    torch waits ten minutes for a rank that has ended meanwhile, and cannot be interrupted: then the
    thread that waits is left alone.
    """
    failed: list[BaseException] = []

    def meet() -> None:
        try:
            join(setup)
        except BaseException as error:  # for the thread that asked
            failed.append(error)

    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    while thread.is_alive() and not others.have_ended:
        thread.join(0.05)
    if failed:
        raise failed[0]
    if others.have_ended:
        raise RuntimeError("a rank has ended")


class _Others:
    """The ranks that this process started."""

    def __init__(self) -> None:
        self.ranks: list[_Rank] = []
        self._watch: Watch | None = None

    def begin_watch(self) -> None:
        """End from now on a rank that stands still: the others then see that it is gone."""
        process_of = {rank.number: rank.process for rank in self.ranks}
        beats = {rank.number: rank.beats for rank in self.ranks}
        self._watch = Watch(beats, lambda number: process_of[number].kill())
        self._watch.begin()

    @property
    def have_ended(self) -> bool:
        """Whether one of them has."""
        return any(rank.process.poll() is not None for rank in self.ranks)

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
        while not self.have_ended:
            if time.monotonic() > until:
                return None
            time.sleep(0.05)
        time.sleep(0.2)  # who was killed may come second to be seen
        ended = [rank for rank in self.ranks if rank.process.poll() is not None]
        told = [(rank, _last_message(rank)) for rank in ended]
        first, error = min(told, key=lambda own: (own[1] is not None, is_consequence(own[1])))
        is_silent = self._watch is not None and first.number in self._watch.silent
        size = len(self.ranks) + 1
        return _died_error(first, error, what, size=size, is_silent=is_silent)

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
        if self._watch is not None:
            self._watch.end()
        for rank in self.ranks:
            rank.process.kill()
            rank.process.wait()
            rank.connection.close()
            os.close(rank.beats)
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


def _died_error(
    rank: _Rank, error: Exception | None, what: str, *, size: int, is_silent: bool
) -> RankDiedError:
    code = rank.process.returncode
    how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    why = f": {str(error).splitlines()[0]}" if error is not None else ""
    advice = "If it was killed for its memory (see `dmesg`), lower optim.tokens_per_micro_batch."
    if is_silent:
        how = f"gave no sign of life for {SILENT_BEATS * BEAT_S:g} s, and was ended,"
        advice = "A machine without free memory (see `vmstat 1`) can be the cause."
    died = RankDiedError(
        f"rank {rank.number} of {size} (process {rank.process.pid}) {how} in {what}{why}. {advice} "
        "The same command goes on from the last checkpoint"
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
