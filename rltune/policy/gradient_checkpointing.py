"""Gradient checkpointing: activations inside a block are computed again in the backward pass.

transformers ties it to training mode, which also switches on dropout, and to running without a
cache. Here the choice is an attribute of the backbone, and only passes with a gradient follow it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from rltune.errors import InputError, Problem

_ATTRIBUTE = "rltune_gradient_checkpointing"  # of a backbone; deep copies carry it along


def set_gradient_checkpointing(model: PreTrainedModel, is_on: bool) -> None:
    """Choose whether blocks are computed again; copies of the model keep the choice.

    Raises:
        InputError: The model has no blocks that support it.

    """
    if is_on and not blocks_of(model.base_model):
        raise InputError(
            Problem(
                "optim.gradient_checkpointing",
                f"{type(model).__name__} has no blocks that can be computed again.",
                action="Set it to false, and lower optim.tokens_per_micro_batch to save memory.",
            )
        )
    setattr(model.base_model, _ATTRIBUTE, is_on)


def is_checkpointed(backbone: torch.nn.Module) -> bool:
    """Return whether passes with a gradient compute a backbone's blocks again."""
    return bool(getattr(backbone, _ATTRIBUTE, False))


@contextmanager
def checkpointing(backbone: torch.nn.Module) -> Iterator[None]:
    """Return the context of a forward pass whose blocks keep only their inputs.

    Nothing changes where it is off for the backbone, or without gradients.
    """
    is_on = is_checkpointed(backbone) and torch.is_grad_enabled()
    blocks = blocks_of(backbone) if is_on else []
    for block in blocks:
        block.training = block.gradient_checkpointing = True  # its children stay in eval mode
        block._gradient_checkpointing_func = partial(  # an adapter drops the same inputs again
            checkpoint, use_reentrant=False, preserve_rng_state=True
        )
    try:
        yield
    finally:
        for block in blocks:
            block.training = block.gradient_checkpointing = False


def blocks_of(backbone: torch.nn.Module) -> list[GradientCheckpointingLayer]:
    """Return the blocks of a backbone, in their order."""
    return [m for m in backbone.modules() if isinstance(m, GradientCheckpointingLayer)]
