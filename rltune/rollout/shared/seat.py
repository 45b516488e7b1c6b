"""A trial's place at a shared engine: to the trial it is as if the engine were its own.

An engine's rounding follows the batch, and the prefixes that it has cached. So it computes one
trial's requests at a time. A trial that comes back to an engine which has forgotten its episodes
has its calls since their beginning repeated: it finds what it left, to the last bit.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rltune.rollout.engine import Batching, Engine, Request, SamplingParams, StreamingEngine


class AdapterEngine(Engine, Protocol):
    """An engine that holds one base model, and an adapter for each of several trials."""

    def load(self, seat: int, folder: Path) -> None:
        """Take over a trial's adapter from a folder of peft's format, which is removed."""

    def serve(self, seat: int) -> None:
        """Sample with a trial's adapter from now on; nothing computed before is reused.

        No request is under way.
        """

    def unload(self, seat: int) -> None:
        """Forget a trial's adapter, if there is one."""


class Seat:
    """The calls of one trial since its episodes began. All methods run in the engine's thread.

    Args:
        number: Names the trial's adapter.

    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._calls: list[tuple[str, Sequence[Any]]] = []
        self._prompts: dict[int, list[int]] = {}  # the last of each conversation
        self._under_way: dict[int, tuple[Request, SamplingParams]] = {}

    def call(self, stream: StreamingEngine, name: str, arguments: Sequence[Any]) -> Any:
        """Call a method of the engine, which is as the last call left it."""
        if name in ("submit", "generate"):
            requests, params = arguments
            self._prompts |= {one.conversation: list(one.prompt_ids) for one in requests}
            if name == "submit":
                self._under_way |= {one.conversation: (one, params) for one in requests}
        self._calls.append((name, arguments))
        result = getattr(stream, name)(*arguments)
        if name == "advance":
            for conversation, _ in result:
                del self._under_way[conversation]
        elif name == "abandon":
            self._under_way = {}
        return result

    def note(self, name: str) -> None:
        """Note a call that the engine need not make now: it is with another trial."""
        self._calls.append((name, ()))
        if name == "abandon":
            self._under_way = {}

    def return_to(self, stream: StreamingEngine) -> None:
        """Bring an engine that has forgotten everything to where this trial left it."""
        if stream.batching is Batching.CONTINUOUS:  # nothing repeats to the last bit there
            self._calls = []
            for request, params in self._under_way.values():
                stream.submit([request], params)
            return
        for name, arguments in self._calls:
            getattr(stream, name)(*arguments)

    def begins_anew(self, name: str, arguments: Sequence[Any]) -> bool:
        """Return whether a call continues nothing, so that an engine forgets what it has cached."""
        if self._under_way or name not in ("submit", "generate"):
            return False
        return not any(self._continues(request) for request in arguments[0])

    def forget(self) -> None:
        """Forget the calls: the next one begins with nothing cached."""
        self._calls, self._prompts, self._under_way = [], {}, {}

    def _continues(self, request: Request) -> bool:
        """Return whether an engine may have cached a part of a prompt."""
        before = self._prompts.get(request.conversation)
        return before is not None and list(request.prompt_ids[: len(before)]) == before
