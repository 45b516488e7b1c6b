"""Which GPUs hold a trial, by their memory."""

from collections.abc import Iterable
from dataclasses import dataclass

MIB = 2**20
SPARE = 0.05
"""Share of a GPU left free: `rltune audit` has seen trials use up to 105 % of their plan."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU."""

    name: str  # as people call it
    memory: int  # bytes that nvidia-smi shows; less than a data sheet's with error correction


GPUS = (
    Gpu("B200", 183_359 * MIB),
    Gpu("H200", 143_771 * MIB),
    Gpu("H100 NVL", 95_830 * MIB),
    Gpu("H100", 81_559 * MIB),
    Gpu("H100 PCIe", 81_559 * MIB),
    Gpu("A100 80GB", 81_920 * MIB),
    Gpu("A100 80GB PCIe", 81_920 * MIB),
    Gpu("A100 40GB", 40_960 * MIB),
    Gpu("L40S", 46_068 * MIB),
    Gpu("RTX 5090", 32_607 * MIB),
    Gpu("RTX 4090", 24_564 * MIB),
    Gpu("RTX 3090", 24_576 * MIB),
    Gpu("A10", 23_028 * MIB),
    Gpu("L4", 23_034 * MIB),
)


def gpus_that_hold(amount: int, *, share: float = 1.0) -> tuple[Gpu, ...]:
    """Return the GPUs that hold so many bytes, the smallest first.

    Args:
        amount: Planned bytes of a trial.
        share: Of a GPU that the trial gets.

    """
    fitting = (gpu for gpu in GPUS if amount <= usable(gpu, share=share))
    return tuple(sorted(fitting, key=_size_class))


def usable(gpu: Gpu, *, share: float = 1.0) -> float:
    """Return the bytes of a share of a GPU that a plan may fill."""
    return gpu.memory * share * (1 - SPARE)


def names(gpus: Iterable[Gpu], *, most: int = 3) -> str:
    """Return `A10, L4 (24 GB), A100 40GB (43 GB) and larger`, at most so many sizes.

    Args:
        gpus: The smallest first.
        most: Sizes that are named.

    """
    sizes: dict[int, list[str]] = {}
    for gpu in gpus:
        sizes.setdefault(_size_class(gpu), []).append(gpu.name)
    texts = [f"{', '.join(of_size)} ({gb} GB)" for gb, of_size in sizes.items()]
    return ", ".join(texts[:most]) + (" and larger" if len(texts) > most else "")


def _size_class(gpu: Gpu) -> int:
    """Return its memory in GB."""
    return round(gpu.memory / 1e9)
