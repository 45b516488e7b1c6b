"""Keys and values in memory that does not move while tokens are added."""

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin


class StaticLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, as transformers' attention asks for them."""

    is_compileable = True

    def __init__(self) -> None:
        super().__init__()
        self.columns_T = torch.empty(0, dtype=torch.long)
        self.shape = (0, 0)  # rows, columns
        self._flat_keys = torch.empty(0)
        self._flat_values = torch.empty(0)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate room for these heads; old contents are lost."""
        rows, columns = self.shape
        (_, heads, _, size), (_, value_heads, _, value_size) = key_states.shape, value_states.shape
        self._flat_keys = key_states.new_zeros(rows * columns * heads * size)
        self._flat_values = value_states.new_zeros(rows * columns * value_heads * value_size)
        self.sizes = ((heads, size), (value_heads, value_size))
        self.is_initialized = True
        self._take_views()

    @property
    def nbytes(self) -> int:
        """Allocated bytes, in use or not."""
        return self._flat_keys.nbytes + self._flat_values.nbytes

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values into their columns; return all columns, also unused ones."""
        key_states, value_states = _as_attended(key_states), _as_attended(value_states)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys.index_copy_(2, self.columns_T, key_states)
        self.values.index_copy_(2, self.columns_T, value_states)
        return self.keys, self.values

    def reshape(self, shape: tuple[int, int], rows: Tensor | None, used: int) -> bool:
        """Change the size, keeping the used columns of some rows (None: of as many as fit).

        Returns:
            Whether the store moved: graphs over the old one are void.

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
        """Return the number of columns; positions are always given."""
        return self.shape[1]

    def get_max_length(self) -> int:
        """Return the same."""
        return self.shape[1]


def _as_attended(states: Tensor) -> Tensor:
    """Return keys or values in the number format that attention casts them to under autocast.

    Rotary positions leave keys in float32, which takes twice the memory and a cast for each token.
    """
    kind = states.device.type
    if torch.is_autocast_enabled(kind) and states.dtype == torch.float32:
        return states.to(torch.get_autocast_dtype(kind))
    return states
