"""An engine in a process of its own, with a GPU of its own: for models that fill one.

The process lives as long as its trial: it ends when the trial closes it, and when the trial dies in
any way. Both are on one machine and see the same folders.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rltune.errors import EngineDiedError
from rltune.interpreter import module_command, module_environment
from rltune.rollout.engine import Batching, Completion, Request, SamplingParams
from rltune.rollout.engine_child import ASK, ERROR, EngineMaker
from rltune.rollout.vllm_start import ServableModel

_CHILD = "rltune.rollout.engine_child"
_END_S = 30.0  # an engine that was told to end and does not is killed
_LAST_WORDS = 2000  # characters


class ProcessEngine:
    """Engine that runs elsewhere and computes what it would compute here.

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
        self._make = make
        self._model = model
        self._dtype = dtype
        self._gpu = gpu
        self._name = name
        self._weights: Iterator[tuple[str, Tensor]] = iter(())
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._folder = Path()
        self._batching = Batching.LOCKSTEP
        self._start()

    @property
    def pid(self) -> int:
        """Id of the engine's process."""
        assert self._process is not None
        return self._process.pid

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request, there."""
        completions: list[Completion] = self._call("generate", list(requests), params)
        return completions

    @property
    def batching(self) -> Batching:
        """As the engine there."""
        return self._batching

    def submit(self, requests: Sequence[Request], params: SamplingParams) -> None:
        """Have requests taken, there."""
        self._call("submit", list(requests), params)

    def advance(self) -> list[tuple[int, Completion]]:
        """Have some tokens decoded: one message there, and one back."""
        ended: list[tuple[int, Completion]] = self._call("advance")
        return ended

    def abandon(self) -> None:
        """Have the requests under way dropped; an interrupted call has ended their process."""
        if self._process is not None:
            self._call("abandon")

    def sync(self) -> None:
        """Have the trainer's weights taken over."""
        self._call("sync")

    def release(self) -> None:
        """Have freed what is not needed until the next call."""
        self._call("release")

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
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rltune-engine-"))
        ours, theirs = socket.socketpair()
        with theirs, (self._folder / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                module_command(_CHILD, str(theirs.fileno()), str(self._folder)),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is for the trial, which may want one more step
            )
        self._connection = Connection(ours.detach())
        about = (self._make, self._model.end_ids, self._model.adapter_rank)
        try:
            self._batching = self._call("start", *about)
        except BaseException:
            self.end()
            raise

    def _environment(self) -> dict[str, str]:
        return module_environment(
            CUDA_VISIBLE_DEVICES=self._gpu,
            OMP_NUM_THREADS=str(torch.get_num_threads()),
            TMPDIR=str(self._folder),
            TORCHINDUCTOR_CACHE_DIR=_kernel_folder(),
        )

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._process is None:  # it was interrupted
            self._start()
        try:
            return self._converse(name, arguments)
        except (EOFError, ConnectionError) as error:
            raise self._died() from error

    def _converse(self, name: str, arguments: Sequence[Any]) -> Any:
        """Call a method there, and answer what it asks on the way."""
        try:
            self._send((name, arguments))
            kind, content = self._receive()
            while kind == ASK:
                self._answer(*content)
                kind, content = self._receive()
        except (EOFError, ConnectionError):
            raise
        except BaseException:  # the next call must not get this one's answer
            self.end()
            raise
        if kind == ERROR:
            raise content
        return content

    def _answer(self, what: str, *arguments: Any) -> None:
        if what == "next_weight":
            self._send_weight()
            return
        if what == "open_weights":
            self._weights = iter(self._model.weights())
        elif what == "write_config":
            folder, max_context = arguments
            self._model.write_config(folder, max_context=max_context)
        else:
            self._model.write_adapter(*arguments)
        self._send(None)

    def _send_weight(self) -> None:
        weight = next(self._weights, None)
        if weight is None:
            self._send(None)
            return
        name, tensor = weight[0], weight[1].to("cpu", self._dtype).contiguous()
        self._send((name, tensor.dtype, tuple(tensor.shape)))
        assert self._connection is not None
        self._connection.send_bytes(tensor.reshape(-1).view(torch.uint8).numpy().data)

    def _send(self, message: Any) -> None:
        assert self._connection is not None
        self._connection.send(message)

    def _receive(self) -> Any:
        assert self._connection is not None
        return self._connection.recv()

    def _died(self) -> EngineDiedError:
        """Clean up after a process that ended by itself, and say how."""
        assert self._process is not None
        code = self._process.wait()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        words = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace").strip()
        self.end()
        error = EngineDiedError(
            f"{self._name}'s process ended {how}. If it was killed for its memory (see "
            "`dmesg`), lower rollout.vllm.kv_cache_gib. The same command goes on from the last "
            "checkpoint."
        )
        if words:  # for the trial's log; the line for people has no room for them
            error.add_note(f"Its last words:\n{words[-_LAST_WORDS:]}")
        return error


def _kernel_folder() -> str:
    """Return where torch keeps compiled kernels: some seconds of each start, if not shared."""
    default = Path(tempfile.gettempdir(), f"torchinductor_{os.getuid()}")
    return os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(default)
