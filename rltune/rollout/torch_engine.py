"""Batched sampling in torch: every distinct context is computed once, and once in all its turns."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from rltune.maths.streams import uniforms
from rltune.rollout.cached_rows import lay_out
from rltune.rollout.engine import Completion, Request, SamplingParams, cut_reason
from rltune.types import StopReason


class DecodableModel(Protocol):
    """The part of a policy that the engine needs; `policy.decode` implements it."""

    pad_id: int
    end_ids: tuple[int, ...]

    def empty_cache(self) -> object:
        """Return a cache that holds no tokens."""

    def reserve(self, cache: Any, rows: int) -> None:
        """Make room for so many rows, which would otherwise grow with use."""

    def extend(self, cache: Any, new: Sequence[Sequence[int]], starts: Sequence[int]) -> Tensor:
        """Add tokens to the first rows; return float32 logits (B, V) after the last of each.

        What a row held from its place `starts` on is written over.
        """

    def copy(
        self, cache: Any, sources: Sequence[int], targets: Sequence[int], *, used: int
    ) -> None:
        """Copy the first `used` tokens of some rows onto other rows, all at once."""

    def release(self) -> None:
        """Free what would only save time in the next call; caches are void afterwards."""


class _Prefix(NamedTuple):
    """What is cached of a conversation: the first tokens of a row, which may hold more."""

    row: int
    tokens: list[int]


class _Context(NamedTuple):
    """Tokens to compute, behind the first `start` tokens of a row; equal ones are computed once."""

    row: int | None
    start: int
    new: tuple[int, ...]


class _Sampled:
    """The response to a request so far."""

    def __init__(self, request: Request, params: SamplingParams) -> None:
        self.request = request
        self._params = params
        self._room = min(params.max_tokens, params.max_context - len(request.prompt_ids))
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.reason = None if self._room > 0 else StopReason.CONTEXT
        self.row = -1  # that holds the context

    @property
    def length(self) -> int:
        """Tokens of the context."""
        return len(self.request.prompt_ids) + len(self.ids)

    def take(self, token: int, logprob: float, end_ids: Sequence[int]) -> None:
        """Add a token, which may end the response."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in end_ids:
            self.reason = StopReason.STOP
        elif len(self.ids) >= self._room:
            self.reason = cut_reason(len(self.ids), self._params)

    @property
    def prefix(self) -> _Prefix:
        """What is cached of it: all but the last token."""
        return _Prefix(self.row, [*self.request.prompt_ids, *self.ids[:-1]])

    @property
    def completion(self) -> Completion:
        """The response, when it is over."""
        if self.reason is None:
            raise ValueError("the response is not over")
        return Completion(tuple(self.ids), tuple(self.logprobs), self.reason)


class TorchEngine:
    """Engine over a transformers model that lives in this process.

    The weights are the trainer's own, so `sync` only forgets what was computed with older ones.
    """

    def __init__(self, model: DecodableModel) -> None:
        self._model = model
        self._prefixes: dict[int, _Prefix] = {}  # of conversations
        self._cache: object | None = None

    def sync(self) -> None:
        """Forget all cached prefixes."""
        self._prefixes = {}
        self._cache = None

    def release(self) -> None:
        """Free the cache."""
        self._model.release()
        self.sync()

    def close(self) -> None:
        """Free the cache."""
        self.release()

    @torch.no_grad()
    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request, all in step."""
        all_sampled = [_Sampled(request, params) for request in requests]
        live = [sampled for sampled in all_sampled if sampled.reason is None]
        if live:
            self._sample(live, params.temperature)
        return [sampled.completion for sampled in all_sampled]

    def _sample(self, sampled: Sequence[_Sampled], temperature: float) -> None:
        prefixes, self._prefixes = self._prefixes, {}  # none is valid if this is interrupted
        contexts = [_continuing(prefixes, one.request) for one in sampled]
        if all(context.row is None for context in contexts):
            self._cache = self._model.empty_cache()
        self._model.reserve(self._cache, len(sampled))
        live, over = list(sampled), list[_Sampled]()
        while live:
            logits_BV = self._extend(live, contexts, over)
            seeds_B = np.array([one.request.seed for one in live], dtype=np.uint64)
            positions_B = np.array([one.length for one in live])
            ids_B, logp_B = _draw(
                logits_BV, temperature=temperature, uniforms_B=uniforms(seeds_B, positions_B)
            )
            for one, token, logp in zip(live, ids_B.tolist(), logp_B.tolist(), strict=True):
                one.take(token, logp, self._model.end_ids)
            over += [one for one in live if one.reason is not None]
            live = [one for one in live if one.reason is None]
            contexts = [_Context(one.row, one.length - 1, (one.ids[-1],)) for one in live]
        self._prefixes = {one.request.conversation: one.prefix for one in over}

    def _extend(
        self, live: Sequence[_Sampled], contexts: Sequence[_Context], over: Sequence[_Sampled]
    ) -> Tensor:
        """Compute each distinct context; return the logits (B, V) of all that are live.

        Rows are set to where the contexts of responses are then, also of those that are over.
        """
        distinct = {context: index for index, context in enumerate(dict.fromkeys(contexts))}
        layout = lay_out([context.row for context in distinct], {one.row for one in over})
        if layout.copies:
            used = max(context.start for context in [*distinct, *map(_whole, over)])
            sources, targets = zip(*layout.copies, strict=True)
            self._model.copy(self._cache, sources, targets, used=used)
        for one in over:
            one.row = layout.moved[one.row]
        order = sorted(distinct, key=lambda context: layout.rows[distinct[context]])
        logits_DV = self._model.extend(
            self._cache, [context.new for context in order], [context.start for context in order]
        )
        for one, context in zip(live, contexts, strict=True):
            one.row = layout.rows[distinct[context]]
        if len(order) == len(live) and all(one.row == row for row, one in enumerate(live)):
            return logits_DV
        return logits_DV[torch.tensor([one.row for one in live], device=logits_DV.device)]


def _continuing(prefixes: dict[int, _Prefix], request: Request) -> _Context:
    """Return what is to be computed of a prompt, behind what is cached of its conversation."""
    prompt = list(request.prompt_ids)
    prefix = prefixes.get(request.conversation)
    if prefix is not None:
        start = len(prefix.tokens)
        if start < len(prompt) and prompt[:start] == prefix.tokens:
            return _Context(prefix.row, start, tuple(prompt[start:]))
    return _Context(None, 0, tuple(prompt))


def _whole(one: _Sampled) -> _Context:
    """Return the context of a response that is over: all but its last token."""
    return _Context(one.row, one.length - 1, ())


def _draw(
    logits_BV: Tensor, *, temperature: float, uniforms_B: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Sample by inverting the cumulative distribution at one uniform number per row."""
    logp_BV = torch.log_softmax(logits_BV / (temperature or 1.0), dim=-1)
    if temperature == 0:
        ids_B = logp_BV.argmax(-1)
    else:
        cumulative_BV = logp_BV.double().exp().cumsum(-1)
        threshold_B1 = (
            torch.from_numpy(uniforms_B).to(logp_BV.device)[:, None] * cumulative_BV[:, -1:]
        )
        ids_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True)[:, 0]
        ids_B = ids_B.clamp(max=logp_BV.shape[-1] - 1)
    return ids_B, logp_BV.gather(-1, ids_B[:, None])[:, 0]
