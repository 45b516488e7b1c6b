"""Incremental decoding over a static cache, on CUDA by one graph a token.

A small model's step is many short kernels, which take longer to launch than to run. A graph
launches all of them at once, but only over memory that does not move. So keys and values are
written into one store, in blocks of rows and columns, and a graph is kept for each size. The price:
attention also reads the unused columns of the last block.
"""

import logging
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import pad
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rltune.policy.decode import ModelDecoder
from rltune.policy.graphs import Graphs
from rltune.policy.kv_cache import keeping
from rltune.policy.precision import compute_dtype, computing
from rltune.policy.static_cache import StaticLayer

ROW_BLOCK = 8
COLUMN_BLOCK = 128
_SMALL = 32  # a store below 1/32 of a GPU's memory is kept while the trainer updates


def has_plain_cache(model: PreTrainedModel) -> bool:
    """Return whether every layer of a model keeps all keys and values, and nothing else."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


class _Step(NamedTuple):
    """Inputs of a forward pass over the whole store; a graph reads them in place."""

    ids_RT: Tensor
    positions_RT: Tensor
    visible_R1TS: Tensor
    columns_T: Tensor
    last_R: Tensor


@dataclass
class StaticCache:
    """The contents of a decoder's store. A decoder has one at a time: a new one voids the last."""

    rows: int = 0
    used: int = 0  # columns


class StaticDecoder(ModelDecoder):
    """Decodes over one static store; the numbers of `TransformersDecoder` up to the last bits.

    Weights that are cast for the computation are cast once, when a cache begins, not at each token.
    So an update is seen when the next cache begins. The arguments are those of `ModelDecoder`.
    """

    def __init__(self, model: PreTrainedModel, *, pad_id: int, end_ids: tuple[int, ...]) -> None:
        super().__init__(model, pad_id=pad_id, end_ids=end_ids)
        self._cast: dict[str, Tensor] = {}
        self._graphs: Graphs[_Step] = Graphs(self._forward)
        self._can_capture = self.device.type == "cuda"
        self._begin()

    def _begin(self) -> None:
        self._layers = [StaticLayer() for _ in DynamicCache(config=self._model.config).layers]
        self._store = Cache(layers=self._layers)
        self._current = StaticCache()

    @torch.no_grad()
    def empty_cache(self) -> StaticCache:
        """Return a cache that holds no tokens, over the weights of now."""
        self._refresh()
        self._current = StaticCache()
        return self._current

    @torch.no_grad()
    def extend(
        self,
        cache: object,
        ids_BT: Tensor,
        positions_BT: Tensor,
        visible_BTS: Tensor,
        last_B: Tensor,
    ) -> Tensor:
        """Append tokens to the cache; return float32 logits (B, V) after new column `last_B`.

        Raises:
            ValueError: The cache is not the newest one.

        """
        held = self._held(cache)
        count, new = ids_BT.shape
        held.rows = count
        shape = (_blocks(count, ROW_BLOCK), _blocks(held.used + new, COLUMN_BLOCK))
        if shape != self._shape:
            self._reshape(shape, None, held.used)
        rows, columns = shape
        extra = rows - count
        columns_T = torch.arange(held.used, held.used + new, device=ids_BT.device)
        held.used += new
        step = _Step(
            ids_RT=pad(ids_BT, (0, 0, 0, extra), value=self.pad_id),
            positions_RT=pad(positions_BT, (0, 0, 0, extra)),
            # A row beyond the last one may read everything: nothing visible would be NaN.
            visible_R1TS=pad(
                pad(visible_BTS, (0, columns - visible_BTS.shape[-1])),
                (0, 0, 0, 0, 0, extra),
                value=True,
            )[:, None],
            columns_T=columns_T,
            last_R=pad(last_B, (0, extra)),
        )
        run = self._replay if new == 1 and self._can_capture else self._forward
        return run(step)[:count]

    def select(self, cache: object, rows: Tensor) -> StaticCache:
        """Keep the given rows, in their order; a row may be taken several times.

        Raises:
            ValueError: The cache is not the newest one.

        """
        held = self._held(cache)
        held.rows = len(rows)
        self._reshape((_blocks(len(rows), ROW_BLOCK), self._shape[1]), rows, held.used)
        return held

    def release(self) -> None:
        """Free the store and its graphs, which voids the cache; on a GPU a small one is kept.

        To capture the graphs again takes as long as decoding some hundred tokens.
        """
        held = sum(layer.nbytes for layer in self._layers) + self._graphs.nbytes
        if self.device.type == "cuda":
            total = torch.cuda.get_device_properties(self.device).total_memory
            if held * _SMALL < total:
                return
        self._graphs.clear()
        self._begin()

    @property
    def _shape(self) -> tuple[int, int]:
        return self._layers[0].shape

    def _held(self, cache: object) -> StaticCache:
        if cache is not self._current:
            raise ValueError("this cache is void: a static decoder has one at a time")
        return self._current

    def _reshape(self, shape: tuple[int, int], rows: Tensor | None, used: int) -> None:
        moved = [layer.reshape(shape, rows, used) for layer in self._layers]
        if any(moved):
            self._graphs.clear()

    def _refresh(self) -> None:
        """Cast the weights of linear layers again, into the memory that graphs read."""
        backbone = self._model.base_model
        dtype = compute_dtype(backbone)
        if dtype == torch.float32:
            return
        for name, module in backbone.named_modules():
            if type(module) is torch.nn.Linear:
                key = f"{name}.weight"
                if key in self._cast:
                    self._cast[key].copy_(module.weight)
                else:
                    self._cast[key] = module.weight.detach().to(dtype)

    def _forward(self, step: _Step) -> Tensor:
        """Return logits (R, V)."""
        backbone = self._model.base_model
        for layer in self._layers:
            layer.columns_T = step.columns_T
        inputs = {
            "input_ids": step.ids_RT,
            "attention_mask": step.visible_R1TS,
            "position_ids": step.positions_RT,
            **keeping(self._store),
        }
        with computing(backbone):
            hidden_RTD = functional_call(backbone, self._cast, (), inputs).last_hidden_state
        return self._logits(hidden_RTD, step.last_R)

    def _replay(self, step: _Step) -> Tensor:
        """Return the same, by a graph."""
        try:
            return self._graphs.replay(self._shape, step)
        except RuntimeError as error:
            self._can_capture = False
            self._graphs.clear()
            text = "no CUDA graphs; kernels are launched one by one: %s"
            logging.getLogger("rltune.trial").warning(text, error)
            return self._forward(step)


def _blocks(count: int, block: int) -> int:
    """Return the next multiple of a block."""
    return -(-count // block) * block
