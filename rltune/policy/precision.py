"""Number formats: trained weights are float32; the computation may be in bfloat16.

At the published learning rate of 1e-6 a step of AdamW is far below the resolution of bfloat16, so
weights in that format would not move. Like verl, this uses mixed precision by autocast.
"""

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.3}
"""Largest difference of a logprob that rounding explains."""

_ATTRIBUTE = "rltune_compute_dtype"  # of a backbone; deep copies carry it along


def set_compute_dtype(model: torch.nn.Module, name: str) -> None:
    """Choose the format of the forward pass; copies of the model keep the choice."""
    setattr(model.base_model, _ATTRIBUTE, DTYPES[name])


def compute_dtype(backbone: torch.nn.Module) -> torch.dtype:
    """Return the format that a backbone computes in; float32 when none was chosen."""
    dtype: torch.dtype = getattr(backbone, _ATTRIBUTE, torch.float32)
    return dtype


def computing(backbone: torch.nn.Module) -> torch.autocast:
    """Return the context that a backbone's forward pass runs in."""
    dtype = compute_dtype(backbone)
    device = next(backbone.parameters()).device.type
    return torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32)


def round_frozen(model: torch.nn.Module) -> None:
    """Store frozen weights in the format of the computation: half the memory in bfloat16.

    Only weights of the backbone's linear layers, which autocast rounds in every pass, so no result
    changes. Where all weights train, nothing is done.
    """
    backbone: torch.nn.Module = getattr(model, "base_model", model)
    dtype = compute_dtype(backbone)
    for layer in backbone.modules():
        if isinstance(layer, torch.nn.Linear):
            for parameter in layer.parameters(recurse=False):
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(dtype)
