"""Where the memory of a tensor begins: on a CPU a product rounds differently from another place.

MKL promises equal bits for operands that begin equally far behind a multiple of 64 bytes. torch
allocates at such multiples; a weight that is read from a file lies where the file has it.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LINE = 64  # bytes


def place_of(tensor: Tensor) -> int:
    """Return how far behind a multiple of `LINE` a tensor begins, in bytes."""
    return tensor.data_ptr() % LINE


def empty_at(place: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return a tensor on the CPU, of any content, that begins at such a place.

    Args:
        place: As of `place_of`; rounded down to a multiple of a number's bytes.
        shape: Of the tensor.
        dtype: Of its numbers.

    """
    n_bytes = math.prod(shape) * dtype.itemsize
    memory = torch.empty(n_bytes + LINE, dtype=torch.uint8)
    start = (place - place % dtype.itemsize - memory.data_ptr()) % LINE
    return memory[start : start + n_bytes].view(dtype).reshape(tuple(shape))
