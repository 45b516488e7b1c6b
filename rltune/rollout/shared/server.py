"""The process of an engine that the trials of a sweep share.

Each trial has a connection and a thread that waits for it, so that one which does not read or write
holds up nobody else. The engine lives in the main thread, which makes one call at a time.
"""

import itertools
import os
import queue
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import torch

from rltune.errors import RltuneError
from rltune.rollout.distant_engine import ERROR, RESULT, EngineMaker
from rltune.rollout.engine import Batching, StreamingEngine
from rltune.rollout.engine_child import DistantModel, die_with_parent, portable
from rltune.rollout.lockstep import streaming
from rltune.rollout.shared.seat import AdapterEngine, Seat
from rltune.rollout.shared.turns import Turns

T = TypeVar("T")

_PATIENCE_S = 120.0  # for each part of the base weights: all trials wait for them
_BROKEN = 3  # exit code
_OF_CALLER = (RltuneError, ValueError, EOFError, OSError)
"""What a trial's call may raise and the engine is as before; after anything else it is not used."""


class _Engine(NamedTuple):
    """An engine, and itself as one that takes requests at any time."""

    adapters: AdapterEngine
    stream: StreamingEngine


class Server:
    """An engine and its trials. It is made with what the first one gives.

    Args:
        turns: Whose requests it computes.

    """

    def __init__(self, turns: Turns) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._turns = turns
        self._numbers = itertools.count(1)
        self._engine: _Engine | None = None
        self._served: Seat | None = None  # whose episodes the engine knows

    def work(self) -> NoReturn:
        """Make the calls of all trials, in this thread."""
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except Exception as error:  # each is its caller's to handle
                future.set_exception(error)

    def listen(self, listener: socket.socket) -> NoReturn:
        """Let trials in, each in a thread."""
        while True:
            connection: Connection[Any, Any] = Connection(listener.accept()[0].detach())
            threading.Thread(target=self.attend, args=(connection,), daemon=True).start()

    def attend(self, connection: "Connection[Any, Any]") -> None:
        """Do what a trial says until it goes, in whatever way, and give its place back."""
        seat = Seat(next(self._numbers))
        model: DistantModel | None = None
        name = ""
        try:
            while name != "close":
                name, arguments = connection.recv()
                try:
                    if model is None:
                        make, end_ids, rank = arguments
                        model = DistantModel(connection, end_ids, rank)
                        result: Any = self._let_in(seat, make, model)
                    else:
                        result = self._do(seat, model, name, arguments)
                except Exception as error:
                    connection.send((ERROR, portable(error)))
                    self._require_sound(error)
                else:
                    connection.send((RESULT, result))
        except (EOFError, OSError):
            pass  # the trial is gone
        finally:
            connection.close()
            self._leave(seat)

    def _let_in(self, seat: Seat, make: EngineMaker, model: DistantModel) -> Batching:
        self._in_engine(partial(self._start, make, model))
        self._sync(seat, model)
        return self._made.stream.batching

    def _start(self, make: EngineMaker, model: DistantModel) -> None:
        """Make the engine with the base weights of the first trial, whose adapter comes later."""
        if self._engine is None:
            model.patience_s = _PATIENCE_S
            engine = cast(AdapterEngine, make(model))
            model.patience_s = None
            engine.unload(0)
            self._engine = _Engine(engine, streaming(engine))

    @property
    def _made(self) -> _Engine:
        assert self._engine is not None
        return self._engine

    def _do(self, seat: Seat, model: DistantModel, name: str, arguments: Sequence[Any]) -> Any:
        if name == "close":
            return None
        if name == "sync":
            return self._sync(seat, model)
        if name in ("abandon", "release"):
            self._in_engine(partial(self._drop, seat, name))
            return self._turns.give_up(seat)
        # A trial that waits for an answer sends nothing: what is there to read is its end.
        with self._turns.taken(seat, is_gone=model.has_sent):
            return self._in_engine(partial(self._sample, seat, name, arguments))

    def _sync(self, seat: Seat, model: DistantModel) -> None:
        """Have the adapter written, which only this trial waits for, and take it over."""
        folder = Path(tempfile.mkdtemp(prefix="adapter-"))
        try:
            model.write_adapter(folder)
            self._in_engine(partial(self._load, seat, folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _load(self, seat: Seat, folder: Path) -> None:
        self._forget(seat)
        self._made.adapters.load(seat.number, folder)

    def _sample(self, seat: Seat, name: str, arguments: Sequence[Any]) -> Any:
        """Make a call that samples; what another trial has left is dropped, and comes back."""
        adapters, stream = self._made
        try:
            if seat.begins_anew(name, arguments):
                seat.forget()
            if self._served is not seat:
                self._served = None
                stream.abandon()
                adapters.serve(seat.number)
                seat.return_to(stream)
                self._served = seat
            return seat.call(stream, name, arguments)
        except BaseException:
            self._forget(seat)
            raise

    def _drop(self, seat: Seat, name: str) -> None:
        """Make a call that samples nothing: at once, or when the trial comes back."""
        if self._served is seat:
            seat.call(self._made.stream, name, ())
        else:
            seat.note(name)

    def _forget(self, seat: Seat) -> None:
        """Have the trial's next call begin with nothing cached, and nothing under way."""
        seat.forget()
        if self._served is seat:
            self._served = None

    def _leave(self, seat: Seat) -> None:
        """Drop what a trial has under way, and its adapter."""
        self._turns.give_up(seat)
        self._in_engine(partial(self._unload, seat))

    def _unload(self, seat: Seat) -> None:
        if self._engine is None:
            return
        if self._served is seat:
            self._engine.stream.abandon()
            self._served = None
        self._engine.adapters.unload(seat.number)

    def _in_engine(self, job: Callable[[], T]) -> T:
        """Have a call made in the engine's thread, and wait for it."""
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future.result()

    def _require_sound(self, error: Exception) -> None:
        """End the process after an error of the engine: nobody knows what it would sample."""
        if not isinstance(error, _OF_CALLER):
            traceback.print_exception(error)
            sys.stderr.flush()
            os._exit(_BROKEN)


def main() -> None:
    """Serve trials. Arguments: the listener's file descriptor and our folder; stdin: a pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which asks for a stop
    threading.Thread(target=die_with_parent, args=(sys.argv[2],), daemon=True).start()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_num_interop_threads(1)
    server = Server(Turns())
    listener = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=server.listen, args=(listener,), daemon=True).start()
    server.work()


if __name__ == "__main__":
    main()
