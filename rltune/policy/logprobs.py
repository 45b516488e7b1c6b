"""Hidden states that predict sampled tokens."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rltune.maths.checks import at_least_float32
from rltune.policy.gradient_checkpointing import checkpointing
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
    inputs = {"input_ids": ids_BT[:, :-1]} if tree is None else tree.inputs(backbone)
    with computing(backbone), checkpointing(backbone):
        hidden: Tensor = backbone(**inputs, **keeping(cache)).last_hidden_state
    hidden_MD = hidden[action_mask_BT[:, 1:]] if tree is None else tree.hidden(hidden)
    return at_least_float32(hidden_MD)


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
