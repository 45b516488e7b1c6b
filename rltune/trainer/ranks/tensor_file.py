"""A file of safetensors, written one tensor at a time: they are never in memory together."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from rltune.trainer.ranks.group import Group

_FORMATS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    group: Group,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the file that `safetensors.torch.save_file` writes, byte for byte.

    Args:
        path: The first rank writes it.
        tensors: By name. Those in shards are put together by all ranks, which call this together.
        group: The ranks.
        metadata: At most one entry: safetensors does not order several.

    """
    ordered = sorted(tensors.items(), key=lambda own: (-own[1].element_size(), own[0]))
    with path.open("wb") if group.rank == 0 else nullcontext() as file:
        if file is not None:
            file.write(_header(ordered, metadata))
        for _, tensor in ordered:
            whole = group.whole(tensor.detach())
            if file is not None:
                file.write(_bytes(whole))


def _header(tensors: Sequence[tuple[str, Tensor]], metadata: Mapping[str, str] | None) -> bytes:
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        shape, place = list(tensor.shape), [begin, end]
        entries[name] = {"dtype": _FORMATS[tensor.dtype], "shape": shape, "data_offsets": place}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
