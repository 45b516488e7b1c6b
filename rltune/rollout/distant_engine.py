"""An engine in another process, told what to do over a connection.

A message there is a method's name and arguments. While it runs, the engine may ask for parts of the
policy; at the end comes the result or the error.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from rltune.errors import EngineDiedError
from rltune.maths.alignment import place_of
from rltune.rollout.engine import Batching, Completion, Engine, Request, SamplingParams
from rltune.rollout.vllm_start import ServableModel

ASK, RESULT, ERROR = "ask", "result", "error"
LAST_WORDS = 2000  # characters
EngineMaker = Callable[[ServableModel], Engine]


class DistantEngine(ABC):
    """Engine that computes elsewhere what it would compute here.

    Args:
        make: Makes the engine there, from the policy as it is seen there. Picklable by name.
        model: The policy.
        dtype: Format of the computation: weights are handed over in it.

    """

    def __init__(self, make: EngineMaker, model: ServableModel, *, dtype: torch.dtype) -> None:
        self._make = make
        self._model = model
        self._dtype = dtype
        self._weights: Iterator[tuple[str, Tensor]] = iter(())
        self._connection: Connection[Any, Any] | None = None
        self._batching = Batching.LOCKSTEP

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
        """Have the requests under way dropped; an interrupted call has dropped them already."""
        if self._connection is not None:
            self._call("abandon")

    def sync(self) -> None:
        """Have the trainer's weights taken over."""
        self._call("sync")

    def release(self) -> None:
        """Have freed what is not needed until the next call."""
        self._call("release")

    @abstractmethod
    def close(self) -> None:
        """End in order; may be called twice."""

    @abstractmethod
    def kill(self) -> None:
        """End a call that is under way in another thread: it raises EngineDiedError."""

    @abstractmethod
    def end(self) -> None:
        """End at once, where no call is under way; the next call starts anew."""

    @abstractmethod
    def _start(self) -> None:
        """Connect, and call `_greet`."""

    @abstractmethod
    def _died(self) -> EngineDiedError:
        """Clean up after an engine that is gone, and say how it went."""

    def _greet(self) -> None:
        """Have the engine made there, or be let in where it is."""
        about = (self._make, self._model.end_ids, self._model.adapter_rank)
        try:
            self._batching = self._call("start", *about)
        except BaseException:
            self.end()
            raise

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._connection is None:  # it was interrupted
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
        self._send((name, tensor.dtype, tuple(tensor.shape), place_of(tensor)))
        assert self._connection is not None
        self._connection.send_bytes(tensor.reshape(-1).view(torch.uint8).numpy().data)

    def _send(self, message: Any) -> None:
        assert self._connection is not None
        self._connection.send(message)

    def _receive(self) -> Any:
        assert self._connection is not None
        return self._connection.recv()
