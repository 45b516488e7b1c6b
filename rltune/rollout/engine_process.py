"""An engine in a process of its own, with a GPU of its own: for models that fill one.

The process lives as long as its trial: it ends when the trial closes it, and when the trial dies in
any way. Both are on one machine and see the same folders.
"""

import socket
import subprocess
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from rltune.errors import EngineDiedError
from rltune.interpreter import module_command
from rltune.rollout.distant_engine import LAST_WORDS, DistantEngine, EngineMaker
from rltune.rollout.engine_environment import engine_environment, link_kernels
from rltune.rollout.vllm_start import ServableModel
from rltune.scratch import Scratch, make_scratch

_CHILD = "rltune.rollout.engine_child"
_END_S = 30.0  # an engine that was told to end and does not is killed


class ProcessEngine(DistantEngine):
    """Engine in a process that this one starts.

    Args:
        make: Makes the engine there, from the policy as it is seen there. Picklable by name.
        model: The policy.
        dtype: Format of the computation: weights are handed over in it.
        gpu: What the process is to see as `CUDA_VISIBLE_DEVICES`; empty for none.
        name: As errors call it.

    Raises:
        InputError: The engine is not installed, or cannot serve this model.
        EngineDiedError: Its process ended.

    """

    def __init__(
        self,
        make: EngineMaker,
        model: ServableModel,
        *,
        dtype: torch.dtype,
        gpu: str,
        name: str = "the rollout engine",
    ) -> None:
        super().__init__(make, model, dtype=dtype)
        self._gpu = gpu
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Scratch | None = None
        self._start()

    @property
    def pid(self) -> int:
        """Id of the engine's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def folder(self) -> Path:
        """Temporary folder of the engine's process."""
        assert self._scratch is not None
        return self._scratch.path

    def close(self) -> None:
        """End the process; may be called twice."""
        if self._process is None:
            return
        try:
            self._send(("close", ()))
            if self._connection is not None and self._connection.poll(_END_S):
                self._receive()
                self._process.wait(_END_S)
        except (EOFError, ConnectionError, subprocess.TimeoutExpired):
            pass  # ended it shall be
        finally:
            self.end()

    def kill(self) -> None:
        """Kill the process; a call under way in another thread then raises EngineDiedError."""
        process = self._process  # that thread may end it meanwhile
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End the process at once, where no call is under way; the next call starts another."""
        if self._process is None or self._connection is None:
            return
        self._process.kill()
        self._process.wait()
        self._connection.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = self._connection = None
        assert self._scratch is not None
        self._scratch.remove()
        self._scratch = None

    def _start(self) -> None:
        self._scratch = make_scratch("engine")
        link_kernels(self.folder)
        ours, theirs = socket.socketpair()
        with theirs, (self.folder / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                module_command(_CHILD, str(theirs.fileno()), str(self.folder)),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=engine_environment(self.folder, gpu=self._gpu, threads=torch.get_num_threads()),
                start_new_session=True,  # Ctrl-C is for the trial, which may want one more step
            )
        self._connection = Connection(ours.detach())
        self._greet()

    def _died(self) -> EngineDiedError:
        """Clean up after a process that ended by itself, and say how."""
        assert self._process is not None
        code = self._process.wait()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        words = (self.folder / "stderr").read_text(encoding="utf-8", errors="replace").strip()
        self.end()
        error = EngineDiedError(
            f"{self._name}'s process ended {how}. If it was killed for its memory (see "
            "`dmesg`), lower rollout.vllm.kv_cache_gib. The same command goes on from the last "
            "checkpoint."
        )
        if words:  # for the trial's log; the line for people has no room for them
            error.add_note(f"Its last words:\n{words[-LAST_WORDS:]}")
        return error
