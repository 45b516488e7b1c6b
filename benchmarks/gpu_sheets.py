"""The two speeds that bound a step, by NVIDIA's data sheets, for the benchmark's report."""

import re
from typing import NamedTuple


class DataSheet(NamedTuple):
    """Speeds of a GPU; a number with sparsity is halved."""

    known_as: str  # whole words of the name that torch gives it
    gb_s: int  # of its memory
    tflop_s: float  # bfloat16 matrices


SHEETS = (  # searched from the top
    DataSheet("B200", 8000, 2250),
    DataSheet("H200", 4800, 989),
    DataSheet("H100 NVL", 3900, 835),
    DataSheet("H100 PCIe", 2000, 756),
    DataSheet("H100", 3350, 989),
    DataSheet("A100 80GB PCIe", 1935, 312),
    DataSheet("A100-SXM4-80GB", 2039, 312),
    DataSheet("A100", 1555, 312),
    DataSheet("L40S", 864, 362),
    DataSheet("RTX 5090", 1792, 209),
    DataSheet("RTX 4090", 1008, 165),
    DataSheet("RTX 3090", 936, 71),
    DataSheet("A10", 600, 125),
    DataSheet("L4", 300, 121),
)


def sheet_of(device: str) -> DataSheet | None:
    """Return the data sheet of a name that torch gives, such as `NVIDIA H100 80GB HBM3`."""
    return next((one for one in SHEETS if re.search(rf"\b{one.known_as}\b", device)), None)
