"""The other end of `engine_process`: an engine, alone in a process, that does what it is told.

A message from the trial is a method's name and arguments. While a method runs, the engine may ask
the trial for parts of its policy; at the end comes the result or the error.
"""

import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from rltune.errors import RltuneError
from rltune.maths.alignment import empty_at
from rltune.rollout.distant_engine import ASK, ERROR, RESULT
from rltune.rollout.engine import StreamingEngine
from rltune.rollout.lockstep import streaming


class DistantModel:
    """The trial's policy, seen from the engine's process.

    Args:
        connection: To the trial, which answers while one of its calls runs here.
        end_ids: Ids that end a response.
        adapter_rank: Rank of the policy's adapters; 0 without.

    """

    def __init__(
        self, connection: "Connection[Any, Any]", end_ids: tuple[int, ...], adapter_rank: int
    ) -> None:
        self._connection = connection
        self.end_ids = end_ids
        self.adapter_rank = adapter_rank
        self.patience_s: float | None = None  # for each answer; None: as long as it takes

    def write_config(self, folder: Path, *, max_context: int) -> None:
        """Have config.json written; both processes see the same folders."""
        self._ask("write_config", folder, max_context)

    def write_adapter(self, folder: Path) -> None:
        """Have the adapter written in peft's format."""
        self._ask("write_adapter", folder)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the trial's weights one by one, in the format that the engine computes in.

        Each lies as the trial's does (`maths.alignment`).
        """
        self._ask("open_weights")
        while (header := self._ask("next_weight")) is not None:
            name, dtype, shape, place = header
            self._require_answer("next_weight")
            weight = empty_at(place, shape, dtype)
            self._connection.recv_bytes_into(weight.reshape(-1).view(torch.uint8).numpy().data)
            yield name, weight

    def has_sent(self) -> bool:
        """Return whether the trial has sent something, or is gone."""
        return self._connection.poll(0)

    def _ask(self, *what: Any) -> Any:
        self._connection.send((ASK, what))
        self._require_answer(what[0])
        return self._connection.recv()

    def _require_answer(self, what: str) -> None:
        if not self._connection.poll(self.patience_s):
            raise TimeoutError(f"the trial has not answered {what} in {self.patience_s} s")


def main() -> None:
    """Serve a trial. Arguments: a file descriptor and our folder; stdin: a pipe of the trial's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trial decides when its engine ends
    watch = threading.Thread(target=die_with_parent, args=(sys.argv[2],), daemon=True)
    watch.start()
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_num_interop_threads(1)
    try:
        _serve(connection)
    except (EOFError, ConnectionError):
        watch.join()  # the trial is gone: the watch ends this process


def _serve(connection: "Connection[Any, Any]") -> None:
    engine: StreamingEngine | None = None
    name = ""
    while name != "close":
        name, arguments = connection.recv()
        try:
            if engine is None:
                make, end_ids, adapter_rank = arguments
                engine = streaming(make(DistantModel(connection, end_ids, adapter_rank)))
                result = engine.batching
            else:
                result = getattr(engine, name)(*arguments)
        except Exception as error:  # each is the trial's to handle
            connection.send((ERROR, portable(error)))
        else:
            connection.send((RESULT, result))


def portable(error: Exception) -> Exception:
    """Return an error as the trial can raise it: kinds that it does not know become text."""
    trace = "".join(traceback.format_exception(error))
    if not (isinstance(error, RltuneError) or type(error) is ValueError):
        return RuntimeError(f"in the engine's process:\n{trace}")
    error.add_note(f"In the engine's process:\n{trace}")  # its cause stays there
    return error


def die_with_parent(folder: str) -> NoReturn:
    """Wait until the parent's end of stdin's pipe is gone, however it went, and leave nothing.

    Args:
        folder: Of this process; it is removed.

    """
    while os.read(0, 4096):  # not sys.stdin: its lock would be held at the interpreter's end
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
