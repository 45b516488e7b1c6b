"""Keys and values of many contexts, one row each, in memory that does not move as tokens are added.

A row's tokens fill its columns from the first on, whatever the rows beside it hold: there are no
holes, and to forget the last tokens of a row is to write over them. The last column belongs to no
token: what is computed for padding goes there.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin


class _Place(NamedTuple):
    """Where a pass writes, and what it reads."""

    rows_B1: Tensor  # the first B rows
    columns_BT: Tensor
    width: int  # columns that attention reads


class _RowLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, as transformers' attention asks for them."""

    is_compileable = True

    def __init__(self) -> None:
        super().__init__()
        self.shape = (0, 0)  # rows, columns
        self.place = _Place(torch.empty(0, 1), torch.empty(0, 0), 0)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate room for these heads.

        Zeros, and not any memory: attention multiplies what it may not read by 0, also a NaN.
        """
        rows, columns = self.shape
        (_, heads, _, size), (_, value_heads, _, value_size) = key_states.shape, value_states.shape
        self.keys = key_states.new_zeros(rows, heads, columns, size)
        self.values = value_states.new_zeros(rows, value_heads, columns, value_size)
        self.is_initialized = True

    @property
    def nbytes(self) -> int:
        """Allocated bytes, in use or not."""
        return self.keys.nbytes + self.values.nbytes if self.is_initialized else 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values into their places; return what attention reads, as views."""
        key_states, value_states = _as_attended(key_states), _as_attended(value_states)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows_B1, columns_BT, width = self.place
        self.keys[rows_B1, :, columns_BT] = key_states.transpose(1, 2)
        self.values[rows_B1, :, columns_BT] = value_states.transpose(1, 2)
        n_rows = len(rows_B1)
        return self.keys[:n_rows, :, :width], self.values[:n_rows, :, :width]

    def grow(self, shape: tuple[int, int]) -> None:
        """Move to larger memory."""
        (rows, columns), self.shape = self.shape, shape
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros(shape[0], old.shape[1], shape[1], old.shape[3])
            new[:rows, :, : columns - 1] = old[:, :, :-1]
            setattr(self, name, new)

    def copy(self, sources: Tensor, targets: Tensor, used: int) -> None:
        """Copy rows onto rows, all at once: a target may be a source, too."""
        if self.is_initialized:
            for tensor in (self.keys[:, :, :used], self.values[:, :, :used]):
                tensor.index_copy_(0, targets, tensor.index_select(0, sources))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the columns that a mask covers, and the first of them."""
        return self.place.width, 0

    def get_seq_length(self) -> int:
        """Return the number of columns; positions are always given."""
        return self.shape[1]

    def get_max_length(self) -> int:
        """Return the same."""
        return self.shape[1]


class RowCache:
    """The keys and values of all layers.

    Args:
        model: The causal LM; every layer keeps the keys and values of all tokens, also one that
            reads a window of them.
        row_block: Rows are allocated in multiples of this,
        column_block: and columns of this.

    """

    def __init__(self, model: PreTrainedModel, *, row_block: int, column_block: int) -> None:
        self._blocks = (row_block, column_block)
        self._layers = [_RowLayer() for _ in DynamicCache(config=model.config).layers]
        self.layers = Cache(layers=self._layers)  # as the model takes them

    @property
    def shape(self) -> tuple[int, int]:
        """Allocated rows and columns."""
        return self._layers[0].shape

    @property
    def nbytes(self) -> int:
        """Allocated bytes, in use or not."""
        return sum(layer.nbytes for layer in self._layers)

    def reserve(self, rows: int, columns: int) -> bool:
        """Make room for at least so many rows and tokens in each.

        Returns:
            Whether the memory moved.

        """
        needed = (rounded_up(rows, self._blocks[0]), rounded_up(columns + 1, self._blocks[1]))
        shape = (max(self.shape[0], needed[0]), max(self.shape[1], needed[1]))
        if shape == self.shape:
            return False
        for layer in self._layers:
            layer.grow(shape)
        return True

    def place(self, columns_BT: Tensor, *, width: int) -> None:
        """Say where the next pass over the first B rows writes, and how many columns it reads."""
        rows_B1 = torch.arange(len(columns_BT), device=columns_BT.device)[:, None]
        for layer in self._layers:
            layer.place = _Place(rows_B1, columns_BT, width)

    def copy(self, sources: Tensor, targets: Tensor, *, used: int) -> None:
        """Copy the first `used` columns of rows onto other rows, all at once."""
        for layer in self._layers:
            layer.copy(sources, targets, used)


def rounded_up(count: int, block: int) -> int:
    """Return the next multiple of a block."""
    return -(-count // block) * block


def _as_attended(states: Tensor) -> Tensor:
    """Return keys or values in the number format that attention casts them to under autocast.

    Rotary positions leave keys in float32, which takes twice the memory and a cast for each token.
    """
    kind = states.device.type
    if torch.is_autocast_enabled(kind) and states.dtype == torch.float32:
        return states.to(torch.get_autocast_dtype(kind))
    return states
