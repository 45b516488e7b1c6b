"""Dropout of the inputs of adapters, in one forward pass and its backward pass.

It acts only in the update, not in scoring, sampling or evaluation. Nothing else of a model enters
training mode, so the base model's own dropout stays off.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_LAYERS = "lora_dropout"  # peft's name of the module before an adapter's first matrix


@contextmanager
def dropping(*modules: nn.Module, seed: int) -> Iterator[None]:
    """Return the context of a forward and a backward pass in which adapters drop inputs.

    The backward pass belongs inside: gradient checkpointing runs the blocks again there. Nothing
    changes without an adapter with dropout.

    Args:
        modules: Modules with the adapters.
        seed: Decides the masks. No global random state moves.

    """
    layers = [layer for module in modules for layer in dropouts(module)]
    if not layers:
        yield
        return
    with _drawing(next(modules[0].parameters()).device, seed):
        for layer in layers:
            layer.train()
        try:
            yield
        finally:
            for layer in layers:
                layer.eval()


@contextmanager
def _drawing(device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's generators of the CPU and of a CUDA device, and restore them at the end.

    `torch.manual_seed` would also move the generators of other devices.
    """
    cuda = [device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for index in cuda:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def dropouts(module: nn.Module) -> list[nn.Dropout]:
    """Return the dropout modules of adapters; peft makes none for a share of 0."""
    return [
        layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Dropout) and _LAYERS in name.split(".")
    ]
