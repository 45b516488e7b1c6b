"""Entry checks of the maths: equal shapes, boolean masks, full precision. Nothing broadcasts."""

import torch
from torch import Tensor


def require_same_shape(*, ndim: int | None = None, **tensors: Tensor) -> None:
    """Raise unless all tensors have one shape (and `ndim` dimensions, when given).

    Raises:
        ValueError: Two shapes differ, or the number of dimensions does. `(B,)` against `(B, 1)`
            would broadcast to `(B, B)` without a word.

    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if len(set(shapes.values())) != 1:
        raise ValueError(f"shapes differ: {listing}. All must be equal; nothing is broadcast.")
    if ndim is not None and len(next(iter(shapes.values()))) != ndim:
        raise ValueError(f"wrong rank: {listing}. Expected {ndim} dimension(s).")


def require_mask(mask: Tensor, *, name: str) -> None:
    """Raise unless the mask is boolean; True means "this token was sampled and is trained".

    Only `bool` is accepted because advantages passed in the mask's place are often 0.0 and 1.0.

    Raises:
        ValueError: The dtype is not `torch.bool`.

    """
    if mask.dtype != torch.bool:
        raise ValueError(
            f"{name} has dtype {mask.dtype}; a mask must be torch.bool, True on sampled tokens. "
            "Pass `mask.bool()` if it holds zeros and ones, and check that it is the mask."
        )


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x` in float32, or unchanged when it is float64.

    exp(20) overflows float16, and a bfloat16 difference of logprobs has two digits.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))
