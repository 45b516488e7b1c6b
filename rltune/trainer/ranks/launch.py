"""The ranks of a trial as processes: the trial's own is the first, which starts the others.

They wait for calls, each of which all ranks make together. They end with the trial, however it
ends; a rank that ends before the trial ends the trial, by name.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from rltune.errors import RankDiedError, RltuneError
from rltune.scratch import make_scratch
from rltune.spec.schema.run import ranks_of
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.ranks.blame import (
    died_error,
    first_to_end,
    is_consequence,
    is_timeout,
    late_error,
    late_ranks,
)
from rltune.trainer.ranks.group import ALONE, Group, Ranks
from rltune.trainer.ranks.join import RankSetup, join
from rltune.trainer.ranks.process import RankProcess, start_rank
from rltune.trainer.ranks.watch import Watch

P = ParamSpec("P")
T = TypeVar("T")

_END_S = 10.0  # a rank that was told to end, or whose end explains an error, has so long


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
    scratch = make_scratch("ranks")
    folder = scratch.path
    others = _Others()
    try:
        for rank in range(1, size):
            others.ranks.append(start_rank(rank, folder))
        others.begin_watch()
        setups = [RankSetup(n, size, config, trial, base, folder) for n in range(size)]
        for other, setup in zip(others.ranks, setups[1:], strict=True):
            with others.watched("the start"):
                other.connection.send(setup)
        for other in others.ranks:  # each has loaded its weights
            with others.watched("the start"):
                other.hear()
        with others.watched("the start"):
            _meet(setups[0], others)
        yield FirstRank(setups[0].device, others)
        others.finish()
    finally:
        others.end()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        scratch.remove()


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
        self.ranks: list[RankProcess] = []
        self.exchanges: Callable[[], int] = int  # that this process has begun with them
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
        return any(rank.has_ended for rank in self.ranks)

    def send(self, message: bytes) -> None:
        """Send a message to each."""
        for rank in self.ranks:
            rank.connection.send_bytes(message)

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Name the rank that explains an error of the code inside: it ended, or did not come.

        What rltune raises on purpose stays: every rank computes it.
        """
        try:
            yield
        except RltuneError:
            raise
        except Exception as error:
            explained = self._explained(error, what)
            if explained is None:
                raise
            raise explained from error

    def _explained(self, error: Exception, what: str) -> RankDiedError | None:
        """Return what the ranks say of an error; None when it is this process's own."""
        until = time.monotonic() + _END_S
        while not self.have_ended and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)  # who was killed may come second to be seen
        size, first = len(self.ranks) + 1, first_to_end(self.ranks)
        assert self._watch is not None
        if first is None or is_consequence(first[1]):
            is_late = is_timeout(error) or (first is not None and is_timeout(first[1]))
            count, signs = self.exchanges(), self._watch.signs
            for rank in late_ranks(self.ranks, signs, count) if is_late else []:
                sign = signs[rank.number]
                return late_error(rank, sign, what, size=size, exchanges=count)
        if first is None:
            return None
        rank, told = first
        is_silent = told is None and rank.number in self._watch.silent  # not while it ended
        return died_error(rank, told, what, size=size, is_silent=is_silent)

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
            rank.end()


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
        others.exchanges = lambda: self.exchanges

    def everywhere(
        self, what: str, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Call a function on all ranks; return what it returns here.

        Raises:
            RankDiedError: A rank ended, or did not come; it is named.

        """
        return self._make(what, partial(function, *args, **named), (function, args[1:], named))

    def beside(
        self, what: str, here: Callable[[], T], there: Callable[..., object], *args: object
    ) -> T:
        """Call a function on this rank, and another one on the others meanwhile.

        Raises:
            RankDiedError: A rank ended, or did not come; it is named.

        """
        return self._make(what, here, (there, args, {}))

    def _make(self, what: str, here: Callable[[], T], there: tuple[object, ...]) -> T:
        """Make a call here, and one there: a function, its arguments behind the state, and more."""
        message = BytesIO()
        torch.save((what, *there), message)
        with self._others.watched(what):
            self._others.send(message.getvalue())
            return here()
