"""Batched sampling in torch, keeping the key-value cache across the turns of an episode."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rltune.maths.streams import uniforms
from rltune.rollout.engine import Completion, Request, SamplingParams, cut_reason
from rltune.types import StopReason


class DecodableModel(Protocol):
    """The part of a policy that the engine needs; `policy.decode` implements it."""

    pad_id: int
    end_ids: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    def empty_cache(self) -> object:
        """Return a cache that holds no tokens."""

    def extend(
        self,
        cache: object,
        ids_BT: Tensor,
        positions_BT: Tensor,
        visible_BTS: Tensor,
        last_B: Tensor,
    ) -> Tensor:
        """Append T tokens per row to the cache and return float32 logits (B, V) at column `last_B`.

        `visible_BTS` says which of the S cached columns, new ones included, each new token may
        read.
        """

    def select(self, cache: object, rows: Tensor) -> object:
        """Return the cache of the given rows; a row may be taken several times."""

    def release(self) -> None:
        """Free what would only save time in the next call; caches are void afterwards."""


class _Rows:
    """Conversations whose prefixes are cached, one per row.

    Columns of the cache need not be contiguous per row: a shorter row has holes, which no token may
    read. A token's position is its index in its own conversation, so holes do not change results.
    """

    def __init__(self, model: DecodableModel) -> None:
        self.model = model
        self.conversations: list[int] = []
        self.tokens: list[list[int]] = []
        self.cache = model.empty_cache()
        self.valid_BS = torch.zeros(0, 0, dtype=torch.bool, device=model.device)

    def prefix_rows(self, requests: Sequence[Request]) -> list[int] | None:
        """Return each request's row when all of them continue a cached prefix."""
        row_of = {conversation: row for row, conversation in enumerate(self.conversations)}
        rows = []
        for request in requests:
            row = row_of.get(request.conversation)
            if row is None:
                return None
            cached = self.tokens[row]
            if len(cached) >= len(request.prompt_ids):
                return None
            if list(request.prompt_ids[: len(cached)]) != cached:
                return None
            rows.append(row)
        return rows

    def keep(self, rows: Sequence[int], conversations: Sequence[int]) -> None:
        """Drop, repeat and reorder rows."""
        if list(rows) != list(range(len(self.tokens))):
            index = torch.tensor(rows, device=self.model.device)
            self.cache = self.model.select(self.cache, index)
            self.valid_BS = self.valid_BS[index]
            self.tokens = [list(self.tokens[row]) for row in rows]
        self.conversations = list(conversations)

    def feed(self, new: Sequence[Sequence[int]]) -> Tensor:
        """Append the new tokens of each row; return logits (B, V) after each row's last token.

        A row without new tokens gets a hole and meaningless logits.
        """
        longest = max(len(ids) for ids in new)
        device = self.model.device
        ids_BT = torch.tensor(
            [[*ids, *[self.model.pad_id] * (longest - len(ids))] for ids in new], device=device
        )
        n_new_B = torch.tensor([len(ids) for ids in new], device=device)
        n_old_B = torch.tensor([len(ids) for ids in self.tokens], device=device)
        columns_T = torch.arange(longest, device=device)
        is_new_BT = columns_T[None] < n_new_B[:, None]
        causal_TT = columns_T[:, None] >= columns_T[None]
        visible_BTS = torch.cat(
            [
                self.valid_BS[:, None].expand(-1, longest, -1),
                is_new_BT[:, None] & causal_TT[None],
            ],
            dim=-1,
        )
        # A place without a token repeats a position that is in use: with absolute position
        # embeddings, one past the context would be an index error.
        last_new_B1 = n_new_B[:, None] - 1
        positions_BT = (n_old_B[:, None] + columns_T.minimum(last_new_B1)).clamp(min=0)
        logits_BV = self.model.extend(
            self.cache, ids_BT, positions_BT, visible_BTS, (n_new_B - 1).clamp(min=0)
        )
        self.valid_BS = torch.cat([self.valid_BS, is_new_BT], dim=-1)
        for row, ids in zip(self.tokens, new, strict=True):
            row.extend(ids)
        return logits_BV


class TorchEngine:
    """Engine over a transformers model that lives in this process.

    The weights are the trainer's own, so `sync` only forgets what was computed with older ones.
    """

    def __init__(self, model: DecodableModel) -> None:
        self._model = model
        self._rows = _Rows(model)

    def sync(self) -> None:
        """Forget all cached prefixes."""
        self._rows = _Rows(self._model)

    def release(self) -> None:
        """Free the cache."""
        self._model.release()
        self.sync()

    def close(self) -> None:
        """Free the cache."""
        self.release()

    @torch.no_grad()
    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request, all rows in step."""
        if not requests:
            return []
        room = [min(params.max_tokens, params.max_context - len(r.prompt_ids)) for r in requests]
        if max(room) <= 0:
            return [Completion((), (), StopReason.CONTEXT) for _ in requests]
        logits_BV = self._prefill(requests)
        seeds_B = np.array([request.seed for request in requests], dtype=np.uint64)
        sampled: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        reasons = [None if space > 0 else StopReason.CONTEXT for space in room]
        while True:
            positions_B = np.array(
                [len(r.prompt_ids) + len(s) for r, s in zip(requests, sampled, strict=True)]
            )
            ids_B, logp_B = _draw(
                logits_BV, temperature=params.temperature, uniforms_B=uniforms(seeds_B, positions_B)
            )
            feed: list[list[int]] = []
            for row, (token, logp) in enumerate(zip(ids_B.tolist(), logp_B.tolist(), strict=True)):
                feed.append([])
                if reasons[row] is not None:
                    continue
                sampled[row].append(token)
                logprobs[row].append(logp)
                if token in self._model.end_ids:
                    reasons[row] = StopReason.STOP
                elif len(sampled[row]) >= room[row]:
                    reasons[row] = cut_reason(len(sampled[row]), params)
                else:
                    feed[row].append(token)
            if all(reason is not None for reason in reasons):
                break
            logits_BV = self._rows.feed(feed)
        return [
            Completion(tuple(ids), tuple(logps), reason)
            for ids, logps, reason in zip(sampled, logprobs, reasons, strict=True)
            if reason is not None  # none is left
        ]

    def _prefill(self, requests: Sequence[Request]) -> Tensor:
        """Bring the rows to the requests' prompts, computing each distinct new prompt once."""
        conversations = [request.conversation for request in requests]
        rows = self._rows.prefix_rows(requests)
        if rows is not None:
            self._rows.keep(rows, conversations)
            return self._rows.feed(
                [
                    request.prompt_ids[len(cached) :]
                    for request, cached in zip(requests, self._rows.tokens, strict=True)
                ]
            )
        self._rows = _Rows(self._model)
        distinct = list(dict.fromkeys(tuple(request.prompt_ids) for request in requests))
        self._rows.conversations = list(range(len(distinct)))
        self._rows.tokens = [[] for _ in distinct]
        self._rows.valid_BS = self._rows.valid_BS.new_zeros(len(distinct), 0)
        logits_DV = self._rows.feed(distinct)
        row_of = {prompt: row for row, prompt in enumerate(distinct)}
        expanded = [row_of[tuple(request.prompt_ids)] for request in requests]
        self._rows.keep(expanded, conversations)
        return logits_DV[torch.tensor(expanded, device=logits_DV.device)]


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
