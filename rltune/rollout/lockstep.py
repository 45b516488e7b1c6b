"""Engines that decode a batch to its end, behind the protocol of those that stream."""

from collections.abc import Sequence

from rltune.rollout.engine import (
    Batching,
    Completion,
    Engine,
    Request,
    SamplingParams,
    StreamingEngine,
)


class Lockstep:
    """Any engine: each `advance` decodes all that was submitted before it, in one call."""

    batching = Batching.LOCKSTEP

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._requests: list[Request] = []
        self._params: SamplingParams | None = None

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request."""
        return self._engine.generate(requests, params)

    def submit(self, requests: Sequence[Request], params: SamplingParams) -> None:
        """Keep requests for the next `advance`.

        Raises:
            ValueError: Others that wait have other params.

        """
        if self._requests and params != self._params:
            raise ValueError(f"params are {params}; those of the waiting requests {self._params}")
        self._requests += requests
        self._params = params

    def advance(self) -> list[tuple[int, Completion]]:
        """Decode all that was submitted, to the end."""
        requests, self._requests = self._requests, []
        if not requests or self._params is None:
            return []
        completions = self._engine.generate(requests, self._params)
        numbers = [request.conversation for request in requests]
        return list(zip(numbers, completions, strict=True))

    def abandon(self) -> None:
        """Drop what was submitted."""
        self._requests = []

    def sync(self) -> None:
        """Take over the trainer's weights."""
        self._engine.sync()

    def release(self) -> None:
        """Free what is not needed until the next call."""
        self._engine.release()

    def close(self) -> None:
        """Free what the engine holds."""
        self._engine.close()


def streaming(engine: Engine) -> StreamingEngine:
    """Return an engine as one that takes requests always: itself, or one behind `Lockstep`."""
    return engine if isinstance(engine, StreamingEngine) else Lockstep(engine)
