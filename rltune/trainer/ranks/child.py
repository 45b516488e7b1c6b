"""A rank other than the first: it has its part of the trained state, and makes the first's calls.

An empty message is the end. An error is told, and ends this process: the trial ends with it.
"""

import faulthandler
import os
import shutil
import signal
import sys
import threading
import traceback
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import torch

from rltune.spec.trial_reference import looking_in
from rltune.store.rundir import TrialDir
from rltune.trainer.ranks.group import Ranks
from rltune.trainer.ranks.join import RankSetup, join
from rltune.trainer.ranks.process import STACKS
from rltune.trainer.ranks.watch import Sign, beat
from rltune.trainer.start import policy_at_start
from rltune.trainer.train_state import make_train_state

_END_S = 10.0  # the watch of a trial that is gone takes less


def main() -> None:
    """Serve a trial. Arguments: descriptors to talk and to beat, the ranks' folder.

    stdin: a pipe of the trial's.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trial decides when its ranks end
    faulthandler.register(STACKS)
    place = _Place()
    beat(int(sys.argv[2]), place.sign)
    watch = threading.Thread(target=_die_with_trial, args=[Path(sys.argv[3])], daemon=True)
    watch.start()
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_num_interop_threads(1)
    try:
        _serve(connection.recv(), connection, place)
    except (EOFError, ConnectionError):
        watch.join(_END_S)  # the trial is gone: the watch ends this process
    except Exception as error:
        told = RuntimeError(f"{type(error).__name__}: {error}")
        told.add_note("".join(traceback.format_exception(error)))
        connection.send(told)
        sys.exit(1)


class _Place:
    """Where this rank is, as its signs of life say."""

    def __init__(self) -> None:
        self.group: Ranks | None = None  # once it has met the others
        self.call = Sign().call

    def sign(self) -> Sign:
        """Return it."""
        return Sign(self.group.exchanges if self.group is not None else 0, self.call)


def _serve(setup: RankSetup, connection: "Connection[Any, Any]", place: _Place) -> None:
    with looking_in(setup.trial):  # as the trial's process, for a model that is another trial's
        policy = policy_at_start(
            TrialDir(setup.trial), setup.config, setup.base, device=str(setup.device)
        )
    connection.send("loaded")
    device = join(setup)
    place.group = Ranks(device)
    state = make_train_state(policy, setup.config, place.group)
    while message := connection.recv_bytes():
        # Only the trial, which started this process, writes to this connection.
        place.call, function, args, named = torch.load(
            BytesIO(message), map_location=device, weights_only=False
        )
        function(state, *args, **named)
    torch.distributed.destroy_process_group()


def _die_with_trial(folder: Path) -> NoReturn:
    """Wait until the trial's end of the pipe is gone, however it went, and leave nothing."""
    while os.read(0, 4096):  # not sys.stdin: its lock would be held at the interpreter's end
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
