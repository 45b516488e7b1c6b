"""Incremental decoding over a cache of fixed places, one CUDA graph a token where there is CUDA.

A small model's step is many short kernels: launching them takes longer than running them. A graph
launches all of them at once, but only over memory that stays where it is. So keys and values are
written into places of one store, in blocks of rows and columns, and a graph is kept for each size.
The price: attention reads the unused columns of the last block, too.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import pad
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

from rltune.maths.checks import at_least_float32
from rltune.policy.keys_values import keeping
from rltune.policy.precision import compute_dtype, computing

ROW_BLOCK = 8
COLUMN_BLOCK = 128


def has_plain_cache(model: PreTrainedModel) -> bool:
    """Return whether every layer of a model keeps all keys and values, and nothing else."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's share of the store, as transformers' attention asks for it."""

    is_compileable = True

    def __init__(self) -> None:
        super().__init__()
        self.places_T = torch.empty(0, dtype=torch.long)
        self.shape = (0, 0)  # rows, columns
        self._flat_keys = torch.empty(0)
        self._flat_values = torch.empty(0)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make room for these heads; what was there is lost."""
        rows, columns = self.shape
        (_, heads, _, size), (_, value_heads, _, value_size) = key_states.shape, value_states.shape
        self._flat_keys = key_states.new_zeros(rows * columns * heads * size)
        self._flat_values = value_states.new_zeros(rows * columns * value_heads * value_size)
        self.sizes = ((heads, size), (value_heads, value_size))
        self.is_initialized = True
        self._take_views()

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values into their places; return all columns, unused ones too."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys.index_copy_(2, self.places_T, key_states)
        self.values.index_copy_(2, self.places_T, value_states)
        return self.keys, self.values

    def reshape(self, shape: tuple[int, int], rows: Tensor | None, used: int) -> bool:
        """Take another size, keeping the used columns of some rows (None: of as many as fit).

        Returns:
            Whether the store had to move: graphs over the old one are void.

        """
        if not self.is_initialized:
            self.shape = shape
            return False
        kept = [
            tensor[: shape[0], :, :used].clone() if rows is None else tensor[rows][:, :, :used]
            for tensor in (self.keys, self.values)
        ]
        self.shape = shape
        needed = [shape[0] * shape[1] * heads * size for heads, size in self.sizes]
        has_moved = needed[0] > len(self._flat_keys) or needed[1] > len(self._flat_values)
        if has_moved:
            self._flat_keys = self._flat_keys.new_zeros(needed[0])
            self._flat_values = self._flat_values.new_zeros(needed[1])
        self._take_views()
        for tensor, old in zip((self.keys, self.values), kept, strict=True):
            tensor[: len(old), :, :used] = old
        return has_moved

    def _take_views(self) -> None:
        (rows, columns), ((heads, size), (value_heads, value_size)) = self.shape, self.sizes
        keys, values = (rows, heads, columns, size), (rows, value_heads, columns, value_size)
        self.keys = self._flat_keys[: rows * heads * columns * size].view(keys)
        self.values = self._flat_values[: rows * value_heads * columns * value_size].view(values)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the columns that a mask covers, and the first of them."""
        return self.shape[1], 0

    def get_seq_length(self) -> int:
        """Return the columns that there are room for; positions are always given."""
        return self.shape[1]

    def get_max_length(self) -> int:
        """Return the same."""
        return self.shape[1]


@dataclass(frozen=True, slots=True)
class _Step:
    """Inputs of a forward pass over all places; a graph reads them where they are."""

    ids_RT: Tensor
    positions_RT: Tensor
    visible_R1TS: Tensor
    places_T: Tensor
    last_R: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """Return them in a fixed order."""
        return self.ids_RT, self.positions_RT, self.visible_R1TS, self.places_T, self.last_R


@dataclass
class StaticCache:
    """What is in a decoder's store. A decoder has one at a time: a new one voids the last."""

    rows: int = 0
    used: int = 0  # columns


class StaticDecoder:
    """Runs a causal LM a few tokens at a time over one store; the same interface and numbers as
    `decode.TransformersDecoder`, up to the last bits.

    Weights that are cast for the computation are cast once, when a cache begins, not at each token.

    Args:
        model: The causal LM; updates are seen when the next cache begins.
        pad_id: Id for unused places.
        end_ids: Ids that end a response.

    """  # noqa: D205

    def __init__(self, model: PreTrainedModel, *, pad_id: int, end_ids: tuple[int, ...]) -> None:
        self._model = model
        self.pad_id = pad_id
        self.end_ids = end_ids
        self._layers = [_Layer() for _ in DynamicCache(config=model.config).layers]
        self._store = Cache(layers=self._layers)
        self._current = StaticCache()
        self._cast: dict[str, Tensor] = {}
        self._graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, _Step, Tensor]] = {}
        self._can_capture = self.device.type == "cuda"

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(self._model.device)

    @torch.no_grad()
    def empty_cache(self) -> StaticCache:
        """Return a cache that holds no tokens, over the weights of now."""
        self._refresh()
        self._current = StaticCache()
        return self._current

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
        places_T = torch.arange(held.used, held.used + new, device=ids_BT.device)
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
            places_T=places_T,
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

    @property
    def _shape(self) -> tuple[int, int]:
        return self._layers[0].shape

    def _held(self, cache: object) -> StaticCache:
        if cache is not self._current:
            raise ValueError("this cache is void: a decoder with fixed places has one at a time")
        return self._current

    def _reshape(self, shape: tuple[int, int], rows: Tensor | None, used: int) -> None:
        moved = [layer.reshape(shape, rows, used) for layer in self._layers]
        if any(moved):
            self._graphs.clear()

    def _refresh(self) -> None:
        """Cast the weights of linear maps again, into the memory that graphs read."""
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
            layer.places_T = step.places_T
        inputs = {
            "input_ids": step.ids_RT,
            "attention_mask": step.visible_R1TS,
            "position_ids": step.positions_RT,
            **keeping(self._store),
        }
        with computing(backbone):
            hidden_RTD = functional_call(backbone, self._cast, (), inputs).last_hidden_state
        rows_R = torch.arange(len(step.last_R), device=step.last_R.device)
        head: Callable[[Tensor], Tensor] = self._model.get_output_embeddings()
        return head(at_least_float32(hidden_RTD[rows_R, step.last_R]))

    def _replay(self, step: _Step) -> Tensor:
        """Do the same by a graph, captured when a size is met for the first time."""
        found = self._graphs.get(self._shape)
        if found is None:
            try:
                found = self._graphs[self._shape] = self._capture(step)
            except RuntimeError as error:
                self._can_capture = False
                text = "no CUDA graphs, each kernel is launched by itself: %s"
                logging.getLogger("rltune.trial").warning(text, error)
                return self._forward(step)
        graph, inputs, logits_RV = found
        for own, new in zip(inputs.tensors(), step.tensors(), strict=True):
            own.copy_(new)
        graph.replay()
        return logits_RV.clone()  # the next replay writes into the same memory

    def _capture(self, step: _Step) -> tuple[torch.cuda.CUDAGraph, _Step, Tensor]:
        """Record one pass; warming up writes the same keys and values to the same places."""
        inputs = _Step(*(tensor.clone() for tensor in step.tensors()))
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._forward(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits_RV = self._forward(inputs)
        return graph, inputs, logits_RV


def _blocks(count: int, block: int) -> int:
    """Return the next multiple of a block."""
    return -(-count // block) * block
