"""CUDA graphs of one pass over inputs of several sizes.

A graph launches all kernels of a pass at once, but only over memory that does not move: inputs are
copied to where it reads them, and the output from where it writes it.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

InputsT = TypeVar("InputsT", bound=tuple[Tensor, ...])


class _Captured(NamedTuple, Generic[InputsT]):
    graph: torch.cuda.CUDAGraph
    inputs: InputsT


class Graphs(Generic[InputsT]):
    """Graphs of a pass, one for each size.

    No two run at a time, so they share one memory pool and one output: many sizes take little more
    memory than the largest.

    Args:
        run: The pass: a named tuple of tensors in, (R, V) out. It may write to other memory if the
            same input writes the same.

    """

    def __init__(self, run: Callable[[InputsT], Tensor]) -> None:
        self._run = run
        self._captured: dict[Hashable, _Captured[InputsT]] = {}
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._out_RV = torch.empty(0, 0)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._captured)

    @property
    def nbytes(self) -> int:
        """Bytes of the output, without the pool."""
        return self._out_RV.nbytes

    def clear(self) -> None:
        """Forget all: their memory has moved."""
        self._captured.clear()
        self._pool = None  # a pool without graphs cannot be entered again
        self._out_RV = torch.empty(0, 0)

    def replay(self, size: Hashable, inputs: InputsT) -> Tensor:
        """Return the result of the pass for these inputs; a new size is captured.

        Raises:
            RuntimeError: The pass cannot be captured, or memory is short.

        """
        if size not in self._captured:
            self._captured[size] = self._capture(inputs)
        graph, buffers = self._captured[size]
        for buffer, value in zip(buffers, inputs, strict=True):
            buffer.copy_(value)
        graph.replay()
        return self._out_RV[: len(inputs[0])].clone()  # the next replay writes over it

    def _capture(self, inputs: InputsT) -> _Captured[InputsT]:
        """Record one pass, after two on the same stream as a warm-up."""
        buffers = type(inputs)(*(tensor.clone() for tensor in inputs))
        current = torch.cuda.current_stream()
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._run(buffers)
            shape = self._run(buffers).shape
        current.wait_stream(self._stream)
        if len(self._out_RV) < shape[0]:
            self.clear()
            self._out_RV = torch.empty(shape, device=current.device)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                self._out_RV[: shape[0]].copy_(self._run(buffers))
        except RuntimeError:
            torch.cuda.set_stream(current)  # torch does not when a capture fails
            raise
        return _Captured(graph, buffers)
