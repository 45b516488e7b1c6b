"""Hidden states that predict sampled tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rltune.maths.checks import at_least_float32
from rltune.policy.gradient_checkpointing import checkpointing, is_checkpointed
from rltune.policy.kv_cache import KVCache, keeping
from rltune.policy.precision import computing
from rltune.policy.row_tree import RowTree

_CHUNK = 4096  # most sampled tokens whose logits are held at once
_LOGITS = 2**26  # most logits held at once: 256 MiB, and a few times that while in use


def action_hidden(
    backbone: torch.nn.Module,
    ids_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    cache: KVCache | None = None,
    tree: RowTree | None = None,
) -> Tensor:
    """Return the last hidden state (M, D) before each sampled token, row-major, in float32.

    Rows are right-padded, so causal attention alone keeps padding out, without a mask. Only the M
    sampled tokens go through the vocabulary head later, so its memory does not grow with the
    observations.

    Args:
        backbone: The model without its head.
        ids_BT: Right-padded token ids.
        action_mask_BT: True on sampled tokens; never in the first column.
        cache: An empty one, to be filled with the keys and values of all columns but the last.
        tree: The same rows as prefix trees, to be run in place of the rows; without a cache.

    """
    if action_mask_BT[:, 0].any():
        raise ValueError("a sampled token in the first column has no context to be predicted from")
    inputs = {"input_ids": ids_BT[:, :-1]} if tree is None else tree.inputs()
    is_read = action_mask_BT[:, 1:] if tree is None else _is_read(inputs["input_ids"], tree.place_M)
    with computing(backbone), checkpointing(backbone), reading(backbone, is_read):
        hidden: Tensor = backbone(**inputs, **keeping(cache)).last_hidden_state
    hidden_MD = hidden[is_read] if tree is None else tree.hidden(hidden)
    return at_least_float32(hidden_MD)


@contextmanager
def reading(backbone: nn.Module, is_read_BT: Tensor) -> Iterator[None]:
    """Have the last layer's MLP compute only where its output is read; elsewhere it is 0.

    Nothing else depends on it there: keys and values come before it. That is a sixth of the work on
    an observation in a model of four layers.

    Nothing changes for a model that names its parts otherwise than `layers[-1].mlp`, where adapters
    drop inputs, and under gradient checkpointing, which runs the layer again when this has ended.
    """
    mlp = _last_mlp(backbone)
    is_again = is_checkpointed(backbone) and torch.is_grad_enabled()
    if mlp is None or is_again or any(module.training for module in mlp.modules()):
        yield
        return

    def only_read(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (given[0][is_read_BT][None], *given[1:])

    def in_place(_: nn.Module, given: tuple[Tensor, ...], out: Any) -> Any:
        if isinstance(out, tuple):  # of a mixture of experts: its router's scores come with it
            return (in_place(_, given, out[0]), *out[1:])
        out_BTD = out.new_zeros(*is_read_BT.shape, out.shape[-1])
        out_BTD[is_read_BT] = out.flatten(0, -2)
        return out_BTD

    hooks = [mlp.register_forward_pre_hook(only_read), mlp.register_forward_hook(in_place)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_read(ids_RW: Tensor, place_M: Tensor) -> Tensor:
    """Return which places of packed rows are read, (R, W)."""
    is_read_RW = torch.zeros_like(ids_RW, dtype=torch.bool)
    is_read_RW.view(-1)[place_M] = True
    return is_read_RW


def _last_mlp(backbone: nn.Module) -> nn.Module | None:
    layers = getattr(backbone, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        return None
    mlp = getattr(layers[-1], "mlp", None)
    return mlp if isinstance(mlp, nn.Module) else None


def head_chunk(model: PreTrainedModel) -> int:
    """Return how many tokens' logits of a model may be held at once."""
    return chunk_of(len(head_weight(model)))


def chunk_of(vocabulary: int) -> int:
    """Return how many tokens' logits may be held at once: fewer, the larger the vocabulary."""
    return min(_CHUNK, max(1, _LOGITS // vocabulary))


def head_weight(model: PreTrainedModel) -> Tensor:
    """Return the (V, D) weight of the vocabulary head."""
    head = model.get_output_embeddings()
    if getattr(head, "bias", None) is not None:
        raise ValueError(f"{type(model).__name__} has a bias in its head, which is not supported")
    weight: Tensor = head.weight
    return weight
