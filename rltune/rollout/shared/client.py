"""A trial's side of an engine that the trials of a sweep share."""

import os
import socket
from contextlib import suppress
from multiprocessing.connection import Client
from pathlib import Path

import torch

from rltune.errors import EngineDiedError
from rltune.rollout.distant_engine import LAST_WORDS, DistantEngine, EngineMaker
from rltune.rollout.shared.host import ERRORS
from rltune.rollout.vllm_start import ServableModel

_END_S = 30.0


class SharedEngine(DistantEngine):
    """Engine of a sweep, seen by one of its trials: it samples what an engine of its own would.

    Args:
        make: Makes the engine, where this trial is the first. Picklable by name.
        model: The policy, with adapters.
        dtype: Format of the computation: base weights are handed over in it.
        address: Socket of the engine's process.

    Raises:
        InputError: The engine is not installed, or cannot serve this model.
        EngineDiedError: Its process ended.

    """

    def __init__(
        self, make: EngineMaker, model: ServableModel, *, dtype: torch.dtype, address: Path
    ) -> None:
        super().__init__(make, model, dtype=dtype)
        self._address = address
        self._start()

    def close(self) -> None:
        """Give this trial's place back; may be called twice."""
        if self._connection is None:
            return
        try:
            self._send(("close", ()))
            if self._connection.poll(_END_S):
                self._receive()
        except (EOFError, ConnectionError):
            pass  # the engine is gone, and the place with it
        finally:
            self.end()

    def kill(self) -> None:
        """End a call that is under way in another thread: it raises EngineDiedError."""
        connection = self._connection
        if connection is None:
            return
        with (  # that thread may close it meanwhile
            suppress(OSError),
            socket.socket(fileno=os.dup(connection.fileno())) as ours,
        ):
            ours.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Hang up, where no call is under way: this trial's place is free then."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _start(self) -> None:
        try:
            self._connection = Client(str(self._address))
        except OSError as error:
            raise self._died() from error
        self._greet()

    def _died(self) -> EngineDiedError:
        self.end()
        error = EngineDiedError(
            "the rollout engine that the trials of this sweep share is gone, or has hung up. If it "
            "was killed for its memory (see `dmesg`), lower rollout.vllm.kv_cache_gib. The same "
            "command goes on from the last checkpoint, with a new engine."
        )
        errors = self._address.parent / ERRORS
        words = errors.read_text("utf-8", "replace").strip() if errors.exists() else ""
        if words:  # for the trial's log; the line for people has no room for them
            error.add_note(f"Its last words:\n{words[-LAST_WORDS:]}")
        return error
