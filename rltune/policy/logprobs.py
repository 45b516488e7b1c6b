"""Hidden states at the places that predict sampled tokens."""

import torch
from torch import Tensor
from transformers import PreTrainedModel


def action_hidden(backbone: torch.nn.Module, ids_BT: Tensor, action_mask_BT: Tensor) -> Tensor:
    """Return the last hidden state (M, D) before each sampled token, in row-major order.

    Rows are right-padded, so causal attention alone keeps padding out of every sampled token, and
    no attention mask is needed. Only the M sampled places go through the vocabulary head later, so
    its memory does not grow with the observations.

    Args:
        backbone: The model without its head.
        ids_BT: Right-padded token ids.
        action_mask_BT: True on sampled tokens; never in the first column.

    """
    if action_mask_BT[:, 0].any():
        raise ValueError("a sampled token in the first column has no context to be predicted from")
    hidden_BTD: Tensor = backbone(input_ids=ids_BT[:, :-1], use_cache=False).last_hidden_state
    return hidden_BTD[action_mask_BT[:, 1:]]


def head_weight(model: PreTrainedModel) -> Tensor:
    """Return the (V, D) weight of the vocabulary head."""
    head = model.get_output_embeddings()
    if getattr(head, "bias", None) is not None:
        raise ValueError(f"{type(model).__name__} has a bias in its head, which is not supported")
    weight: Tensor = head.weight
    return weight
