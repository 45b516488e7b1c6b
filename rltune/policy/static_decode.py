"""Incremental decoding over a static cache, on CUDA by one graph a token.

A small model's step is many short kernels, which take longer to launch than to run. A graph
launches all of them at once, but only over memory that does not move. So one cache is kept and used
again, passes are over blocks of its rows and columns, and a graph is kept for each size. The price:
a pass also computes the unused rows and reads the unused columns of the last block.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rltune.policy.decode import ModelDecoder, NewTokens, TransformersDecoder, visible
from rltune.policy.graphs import Graphs
from rltune.policy.kv_cache import keeping
from rltune.policy.precision import compute_dtype, computing
from rltune.policy.row_cache import RowCache, rounded_up

ROW_BLOCK = 8
COLUMN_BLOCK = 128
_SMALL = 32  # a store below 1/32 of a GPU's memory is kept while the trainer updates


def has_plain_cache(model: PreTrainedModel) -> bool:
    """Return whether every layer of a model keeps all keys and values, and nothing else."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


@dataclass(eq=False)
class StaticCache:
    """The contents of a decoder's store. A decoder has one at a time: a new one voids the last."""


class StaticDecoder(ModelDecoder):
    """Decodes over one static store; the numbers of `TransformersDecoder` up to the last bits.

    Weights that are cast for the computation are cast once, when a cache begins, not at each token.
    So an update is seen when the next cache begins. The arguments are those of `ModelDecoder`.
    """

    def __init__(self, model: PreTrainedModel, *, pad_id: int, end_ids: tuple[int, ...]) -> None:
        super().__init__(model, pad_id=pad_id, end_ids=end_ids)
        self._cast: dict[str, Tensor] = {}
        self._graphs: Graphs[NewTokens] = Graphs(self._forward)
        self._can_capture = self.device.type == "cuda"
        self._begin()

    def _begin(self) -> None:
        self._store = RowCache(self._model, row_block=ROW_BLOCK, column_block=COLUMN_BLOCK)
        self._current = StaticCache()
        self._width = 0

    @torch.no_grad()
    def empty_cache(self) -> StaticCache:
        """Return a cache that holds no tokens, over the weights of now."""
        self._refresh()
        self._current = StaticCache()
        return self._current

    def reserve(self, cache: object, rows: int) -> None:
        """Make room for so many rows.

        Raises:
            ValueError: The cache is not the newest one.

        """
        self._require_current(cache)
        self._reserve(rows, 0)

    @torch.no_grad()
    def extend(self, cache: object, new: Sequence[Sequence[int]], starts: Sequence[int]) -> Tensor:
        """Add tokens to the first rows; return float32 logits (B, V) after the last of each.

        Raises:
            ValueError: The cache is not the newest one.

        """
        self._require_current(cache)
        used = max(start + len(ids) for start, ids in zip(starts, new, strict=True))
        self._reserve(len(new), used)
        rows, columns = self._store.shape
        inputs = self._new_tokens(
            new, starts, nobodys=columns - 1, rows=min(rows, _rows_of_pass(len(new)))
        )
        self._width = rounded_up(used, COLUMN_BLOCK)
        is_one_token = inputs.ids_BT.shape[1] == 1
        run = self._replay if is_one_token and self._can_capture else self._forward
        return run(inputs)[: len(new)]

    @torch.no_grad()
    def copy(
        self, cache: object, sources: Sequence[int], targets: Sequence[int], *, used: int
    ) -> None:
        """Copy the first `used` tokens of some rows onto other rows, all at once.

        Raises:
            ValueError: The cache is not the newest one.

        """
        self._require_current(cache)
        index = torch.tensor([sources, targets], device=self.device)
        self._store.copy(index[0], index[1], used=used)

    def release(self) -> None:
        """Free the store and its graphs, which voids the cache; on a GPU a small one is kept.

        To capture the graphs again takes as long as decoding some hundred tokens.
        """
        held = self._store.nbytes + self._graphs.nbytes
        if self.device.type == "cuda":
            total = torch.cuda.get_device_properties(self.device).total_memory
            if held * _SMALL < total:
                return
        self._graphs.clear()
        self._begin()

    def _require_current(self, cache: object) -> None:
        if cache is not self._current:
            raise ValueError("this cache is void: a static decoder has one at a time")

    def _reserve(self, rows: int, columns: int) -> None:
        if self._store.reserve(rows, columns):
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

    def _forward(self, inputs: NewTokens) -> Tensor:
        """Return logits (R, V)."""
        backbone = self._model.base_model
        self._store.place(inputs.columns_BT, width=self._width)
        arguments = {
            "input_ids": inputs.ids_BT,
            "attention_mask": visible(inputs.positions_BT, self._width),
            "position_ids": inputs.positions_BT,
            **keeping(self._store.layers),
        }
        with computing(backbone):
            hidden_RTD = functional_call(backbone, self._cast, (), arguments).last_hidden_state
        return self._logits(hidden_RTD, inputs.last_B)

    def _replay(self, inputs: NewTokens) -> Tensor:
        """Return the same, by a graph."""
        try:
            return self._graphs.replay((len(inputs.ids_BT), self._width), inputs)
        except RuntimeError as error:
            self._can_capture = False
            self._graphs.clear()
            text = "no CUDA graphs; kernels are launched one by one: %s"
            logging.getLogger("rltune.trial").warning(text, error)
            return self._forward(inputs)


def _rows_of_pass(count: int) -> int:
    """Return how many rows a pass is over: few sizes, at most a quarter more than needed."""
    return rounded_up(count, max(ROW_BLOCK, 1 << count.bit_length() >> 3))


def decoder_of(
    model: PreTrainedModel, *, pad_id: int, end_ids: tuple[int, ...]
) -> TransformersDecoder | StaticDecoder:
    """Return the decoder of a rollout engine over a model; on CUDA it uses graphs."""
    is_static = model.device.type == "cuda" and has_plain_cache(model)
    kind = StaticDecoder if is_static else TransformersDecoder
    return kind(model, pad_id=pad_id, end_ids=end_ids)
