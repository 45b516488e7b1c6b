"""Engines that trials share in tests, and policies that they can serve."""

from pathlib import Path

import torch

from rltune.rollout.engine import Batching, Completion
from rltune.types import StopReason

LENGTH = 4  # passes until a response ends


class Rounding:
    """An engine whose logprobs tell all that it has computed since it last forgot.

    So they differ as soon as a pass was another one: the rounding of a real engine, made plain. It
    forgets as real ones do, when it is told to and when a call continues nothing.
    """

    batching = Batching.REPEATABLE

    def __init__(self, model=None):
        self.adapters = {0: "first"}
        self.served = 0
        self._forget()

    def _forget(self):
        self._past, self._prompts, self._under_way = [], {}, {}

    def load(self, seat, folder):
        self.adapters[seat] = Path(folder, "adapter").read_text()

    def serve(self, seat):
        if self._under_way:
            raise ValueError(f"requests of {self.served} are still under way")
        self.served = self.adapters[seat]
        self._forget()

    def unload(self, seat):
        self.adapters.pop(seat, None)

    def submit(self, requests, params):
        if params == "too long":
            raise ValueError("it is too long")
        if not self._under_way and not any(self._continues(one) for one in requests):
            self._forget()
        self._prompts |= {one.conversation: list(one.prompt_ids) for one in requests}
        self._under_way |= {one.conversation: (LENGTH + one.seed % 2, one) for one in requests}

    def _continues(self, request):
        before = self._prompts.get(request.conversation)
        return before is not None and list(request.prompt_ids[: len(before)]) == before

    def advance(self):
        self._past.append(sorted(self._under_way))
        left = {name: (passes - 1, one) for name, (passes, one) in self._under_way.items()}
        self._under_way = {name: pair for name, pair in left.items() if pair[0]}
        return [(name, self._answer(one)) for name, (passes, one) in left.items() if not passes]

    def _answer(self, request):
        told = hash((self.served, request.seed, repr(self._past))) % 10**9
        return Completion((request.seed, 3), (-told / 1e9, 0.0), StopReason.STOP)

    def generate(self, requests, params):
        self.submit(requests, params)
        answers = {}
        while self._under_way:
            answers |= dict(self.advance())
        return [answers[one.conversation] for one in requests]

    def abandon(self):
        if self._under_way:
            self._forget()

    def sync(self):
        self._forget()

    def release(self):
        """Nothing is held."""

    def close(self):
        """Nothing is held."""


class Continuous(Rounding):
    """The same, which says that it does not repeat."""

    batching = Batching.CONTINUOUS


class Counting(Rounding):
    """The same, which counts its calls."""

    calls = 0

    def submit(self, requests, params):
        self.calls += 1
        super().submit(requests, params)

    def advance(self):
        self.calls += 1
        return super().advance()


class Weighing(Rounding):
    """The same, which takes over the base weights at its start."""

    def __init__(self, model):
        super().__init__()
        self.weights = dict(model.weights())


class Adapter:
    """Stands for a trial's policy: its adapter is a word."""

    end_ids = (3,)
    adapter_rank = 1

    def __init__(self, word):
        self.word = word

    def weights(self):
        yield "base", torch.ones(3)

    def write_adapter(self, folder):
        Path(folder, "adapter").write_text(self.word)


class Alone(Rounding):
    """The same engine, alone: what one that is shared must give each trial."""

    def __init__(self, adapter):
        super().__init__()
        self._adapter = adapter
        self.sync()

    def sync(self):
        self.adapters[0] = self._adapter.word
        self.serve(0)
