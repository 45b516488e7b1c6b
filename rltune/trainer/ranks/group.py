"""The ranks of a trial, as its code sees them.

Code is written once: what it asks of the group of a trial on one rank is given back as it is.
"""

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


class Group:
    """One rank alone: everything is here, and nothing is exchanged."""

    rank = 0
    size = 1

    def everywhere(
        self, what: str, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Call a function on all ranks; return what it returns here.

        Args:
            what: What the call is, for an error: `update of step 3`.
            function: Of a module. Its first argument is the trained state, of which each rank has
                its own.
            args: The others are sent to the other ranks.
            named: As `args`.

        """
        return function(*args, **named)

    def beside(
        self,
        what: str,
        here: Callable[[], T],
        there: Callable[..., object],
        *args: object,
    ) -> T:
        """Call a function on this rank, and another one on the others meanwhile.

        Args:
            what: As in `everywhere`.
            here: For this rank. Both make the same exchanges.
            there: Of a module. Its first argument is the trained state of each.
            args: The others.

        Returns:
            What the first function does.

        """
        return here()

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors, the same on all."""
        return tensor

    def added(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of the ranks' numbers by name; one that a rank lacks counts 0 there."""
        return dict(sums)

    def joined(self, items: list[T]) -> list[T]:
        """Return the items of all ranks, rank by rank."""
        return items

    def whole(self, tensor: Tensor) -> Tensor:
        """Return a tensor of which each rank has a part."""
        return tensor


ALONE = Group()


class Ranks(Group):
    """One of several ranks, which call the same methods in the same order.

    torch's default process group has been made.

    Args:
        device: Of this rank's tensors.

    """

    def __init__(self, device: torch.device) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.rank = torch.distributed.get_rank()
        self.size = torch.distributed.get_world_size()
        self.mesh = init_device_mesh(device.type, (self.size,))
        backend = self.mesh.get_group()._get_backend(device)
        # torch's own count, for its own debugging; a torch without it has 0 on all ranks
        self._begun: Callable[[], int] = getattr(backend, "_get_sequence_number_for_group", int)

    @property
    def exchanges(self) -> int:
        """How many exchanges of tensors with the others this rank has begun."""
        return self._begun()

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors, the same on all."""
        total = tensor.clone()
        torch.distributed.all_reduce(total)
        return total

    def added(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of the ranks' numbers by name; one that a rank lacks counts 0 there."""
        parts = self._all(dict(sums))
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: sum(part.get(name, 0.0) for part in parts) for name in names}

    def joined(self, items: list[T]) -> list[T]:
        """Return the items of all ranks, rank by rank."""
        return [item for part in self._all(items) for item in part]

    def whole(self, tensor: Tensor) -> Tensor:
        """Return a tensor of which each rank has a part; one that is no DTensor is whole."""
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def _all(self, part: T) -> list[T]:
        parts: list[T | None] = [None] * self.size
        torch.distributed.all_gather_object(parts, part)
        return [one for one in parts if one is not None]
