"""Rows of a micro-batch as prefix trees: what they have in common goes through a model once.

A token's hidden state depends on the tokens before it and on its position alone. So what rows have
in common is computed once, if a place of a packed row sees its ancestors only, at the position that
it has in its rows. The numbers are those of row by row up to rounding, and so are the gradients:
that of a place is the sum over the rows that pass through it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rltune.maths.prefix_tree import PackedRows, pack, visible_places


@dataclass(frozen=True, slots=True)
class RowTree:
    """Rows as prefix trees, on the device of their ids.

    The predictions of one token after one prefix are equal, whichever rows make them.

    Attributes:
        packed: The trees.
        place_M: Flat place before each of the M sampled tokens, row-major.
        first_U: A sampled token of each of the U distinct predictions.
        prediction_M: The distinct prediction that each sampled token is.

    """

    packed: PackedRows
    place_M: Tensor
    first_U: Tensor
    prediction_M: Tensor

    def inputs(self, backbone: nn.Module) -> dict[str, Tensor]:
        """Return the arguments of a forward pass that depend on the rows."""
        return {
            "input_ids": self.packed.ids_RW,
            "position_ids": self.packed.depth_RW,
            "attention_mask": attention_mask(backbone, visible_places(self.packed.end_RW)),
        }

    def hidden(self, hidden_RWD: Tensor) -> Tensor:
        """Return the hidden state before each sampled token, (M, D)."""
        return hidden_RWD.flatten(0, 1)[self.place_M]


def row_tree(ids_BT: Tensor, action_mask_BT: Tensor, *, pair_cost: float) -> RowTree:
    """Return rows as prefix trees.

    Args:
        ids_BT: Right-padded token ids.
        action_mask_BT: True on sampled tokens, at least one; never in the first column.
        pair_cost: Of the model that will read them, by `attention_cost`.

    """
    ids, mask = ids_BT.cpu(), action_mask_BT.cpu()
    packed = pack(ids, _read(mask), pair_cost=pair_cost)
    place_M = packed.place_BT[:, :-1][mask[:, 1:]]
    first_U, prediction_M = _distinct(place_M, ids[mask])
    parts = (tensor.to(ids_BT.device) for tensor in (place_M, first_U, prediction_M))
    return RowTree(packed.to(ids_BT.device), *parts)


def tree_work(tree: RowTree, *, pair_cost: float) -> float:
    """Return the estimated work of a pass over trees, in that of one place without attention."""
    n_rows, width = tree.packed.ids_RW.shape
    return n_rows * width * (1 + pair_cost * width)


def rows_work(action_mask_BT: Tensor, *, pair_cost: float) -> float:
    """Return the same of the rows as they are: their causal attention reads half of the pairs."""
    width = int(_read(action_mask_BT).max())
    return len(action_mask_BT) * width * (1 + pair_cost * width / 2)


def _read(action_mask_BT: Tensor) -> Tensor:
    """Return how many tokens of each row are read, (B,): not the last sampled one."""
    columns_T = torch.arange(action_mask_BT.shape[1], device=action_mask_BT.device)
    return (action_mask_BT * columns_T).amax(dim=1)


def _distinct(place_M: Tensor, ids_M: Tensor) -> tuple[Tensor, Tensor]:
    """Return one index of each distinct pair, and the distinct pair of each index."""
    keys_M = place_M * (int(ids_M.max()) + 1) + ids_M
    _, first_U, pair_M = np.unique(keys_M.numpy(), return_index=True, return_inverse=True)
    return torch.from_numpy(first_U), torch.from_numpy(pair_M)


def attention_mask(backbone: nn.Module, visible_BQK: Tensor) -> Tensor:
    """Return the mask (B, 1, Q, K) by which each place sees some others, at least itself."""
    visible = visible_BQK[:, None]
    config: Any = backbone.config
    if config._attn_implementation == "sdpa":
        return visible
    dtype = next(backbone.parameters()).dtype
    lowest = torch.finfo(dtype).min  # eager attention adds its mask to the scores
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, lowest)


def attention_cost(model: PreTrainedModel) -> float:
    """Return the work of attention from one place to another, as a share of all else for a place.

    Both in multiplications: two of length head_dim in every head, and one for each weight.
    """
    config, backbone = model.config, model.base_model
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    tables = {id(m.weight) for m in backbone.modules() if isinstance(m, nn.Embedding)}
    weights = sum(p.numel() for p in backbone.parameters() if p.ndim == 2 and id(p) not in tables)
    return float(2 * config.num_hidden_layers * heads * head_dim / max(1, weights))
