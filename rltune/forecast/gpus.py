"""GPUs that a trial may run on: memory, and the two speeds that bound a step."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MIB = 2**20
SPARE = 0.05
"""Share of a card left free: `rltune audit` has seen trials use up to 105 % of their plan."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU.

    Attributes:
        name: As people call it.
        known_as: Whole words of the name that torch gives it.
        memory: Bytes that a driver shows; less than a data sheet's where error correction takes
            some.
        bandwidth: Bytes per second of its memory.
        flops: Floating-point operations per second in bfloat16, matrices without sparsity.
        flops_float32: The same in float32, without TF32.

    """

    name: str
    known_as: str
    memory: int
    bandwidth: float
    flops: float
    flops_float32: float


def _card(name: str, known_as: str, mib: int, gb_s: int, tflops: float, float32: float) -> Card:
    return Card(name, known_as, mib * MIB, gb_s * 1e9, tflops * 1e12, float32 * 1e12)


# Speeds are those of NVIDIA's data sheets, where a number with sparsity is halved; memory is the
# total that nvidia-smi prints. `known_as` is searched from the top.
CARDS = (
    _card("B200", "B200", 183_359, 8000, 2250, 80),
    _card("H200", "H200", 143_771, 4800, 989, 67),
    _card("H100 NVL", "H100 NVL", 95_830, 3900, 835, 60),
    _card("H100 PCIe", "H100 PCIe", 81_559, 2000, 756, 51),
    _card("H100", "H100", 81_559, 3350, 989, 67),
    _card("A100 80GB PCIe", "A100 80GB PCIe", 81_920, 1935, 312, 19.5),
    _card("A100 80GB", "A100-SXM4-80GB", 81_920, 2039, 312, 19.5),
    _card("A100 40GB", "A100", 40_960, 1555, 312, 19.5),
    _card("L40S", "L40S", 46_068, 864, 362, 91.6),
    _card("RTX 5090", "RTX 5090", 32_607, 1792, 209, 105),
    _card("RTX 4090", "RTX 4090", 24_564, 1008, 165, 82.6),
    _card("RTX 3090", "RTX 3090", 24_576, 936, 71, 35.6),
    _card("A10", "A10", 23_028, 600, 125, 31.2),
    _card("L4", "L4", 23_034, 300, 121, 30.3),
)


def card_named(device: str) -> Card | None:
    """Return the card of a name that torch gives, such as `NVIDIA H100 80GB HBM3`."""
    return next((card for card in CARDS if re.search(rf"\b{card.known_as}\b", device)), None)


def cards_that_hold(amount: int, *, share: float = 1.0) -> tuple[Card, ...]:
    """Return the cards that hold so many bytes, the smallest first, the faster of equals first.

    Args:
        amount: Planned bytes of a trial.
        share: Of a card that the trial gets.

    """
    fitting = (card for card in CARDS if amount <= usable(card, share=share))
    return tuple(sorted(fitting, key=lambda card: (_class(card), -card.flops)))


def usable(card: Card, *, share: float = 1.0) -> float:
    """Return the bytes of a share of a card that a plan may fill."""
    return card.memory * share * (1 - SPARE)


def names(cards: Iterable[Card], *, most: int = 3) -> str:
    """Return `A10, L4 (24 GB), A100 40GB (43 GB) and larger`, at most so many sizes.

    Args:
        cards: The smallest first.
        most: Sizes that are named.

    """
    sizes: dict[int, list[str]] = {}
    for card in cards:
        sizes.setdefault(_class(card), []).append(card.name)
    texts = [f"{', '.join(found)} ({gb} GB)" for gb, found in sizes.items()]
    return ", ".join(texts[:most]) + (" and larger" if len(texts) > most else "")


def _class(card: Card) -> int:
    """Return its memory in GB."""
    return round(card.memory / 1e9)
