"""Dropout of the inputs of adapters, in one forward pass and the backward pass that follows it.

It acts in the update alone: whatever scores, samples or evaluates has it off. Nothing else of a
model enters training mode, so that the base model's own dropout stays off in any case.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_LAYERS = "lora_dropout"  # as peft names the modules in front of an adapter's first matrix


@contextmanager
def dropping(*modules: nn.Module, seed: int) -> Iterator[None]:
    """Return the context of a forward and a backward pass in which adapters drop inputs.

    The backward pass belongs into it: gradient checkpointing runs the blocks again there. Nothing
    changes where no adapter has a dropout above 0.

    Args:
        modules: Whose adapters drop inputs.
        seed: Decides the masks. No global random state moves.

    """
    layers = [layer for module in modules for layer in _dropouts(module)]
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
    """Seed torch's generators of the CPU and of a CUDA device, and put them back at the end.

    `torch.manual_seed` would also move the generators of devices that no one puts back.
    """
    cuda = [device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for index in cuda:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def _dropouts(module: nn.Module) -> list[nn.Dropout]:
    """Return the dropout of each adapter; with a share of 0 peft puts none there."""
    return [
        layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Dropout) and _LAYERS in name.split(".")
    ]
