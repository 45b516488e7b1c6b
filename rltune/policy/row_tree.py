"""Rows of a micro-batch as prefix trees: what they have in common goes through a model once.

A token's hidden state depends on the tokens before it and on its position alone. So what rows have
in common is computed once: all layers run over the places of the tree, one after the other, and
attention runs over rows, whose keys and values are gathered from the places. The numbers are those
of row by row up to rounding, and so are the gradients: that of a place is the sum over the rows
that pass through it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rltune.maths.prefix_tree import PrefixTree, prefix_tree


@dataclass(frozen=True, slots=True)
class RowTree:
    """Rows as prefix trees, on the device of their ids.

    The predictions of one token after one prefix are equal, whichever rows make them.

    Attributes:
        tree: The tree.
        place_M: Place before each of the M sampled tokens, row-major.
        first_U: A sampled token of each of the U distinct predictions.
        prediction_M: The distinct prediction that each sampled token is.

    """

    tree: PrefixTree
    place_M: Tensor
    first_U: Tensor
    prediction_M: Tensor

    def inputs(self) -> dict[str, Any]:
        """Return the arguments of a forward pass that depend on the rows.

        The tree goes along to the attention. A mask of four dimensions stops a model from making
        its own.
        """
        return {
            "input_ids": self.tree.ids_P[None],
            "position_ids": self.tree.depth_P[None],
            "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.place_M.device),
            "row_tree": self.tree,
        }

    def hidden(self, hidden_1PD: Tensor) -> Tensor:
        """Return the hidden state before each sampled token, (M, D)."""
        return hidden_1PD[0].index_select(0, self.place_M)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    row_tree: PrefixTree | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' `sdpa` does; with a tree, its rows in place of one row of places.

    Args:
        module: The layer.
        query: (1, H, P, d) with a tree.
        key: As `query`, maybe with fewer heads.
        value: As `key`.
        attention_mask: Not read with a tree.
        row_tree: As in `RowTree.inputs`.
        options: Of `sdpa`.

    """
    if row_tree is None:
        whole: tuple[Tensor, None] = _sdpa(module, query, key, value, attention_mask, **options)
        return whole
    q_PE, k_PE, v_PE = (x[0].transpose(0, 1).flatten(1) for x in (query, key, value))
    answers = []
    for block in row_tree.blocks:
        heads = (
            _gathered(q_PE, block.asking_RQ, query.shape[1]),
            _gathered(k_PE, block.seen_RK, key.shape[1]),
            _gathered(v_PE, block.seen_RK, value.shape[1]),
        )
        answer_RQHd, _ = _sdpa(module, *heads, block.visible_RQK[:, None], **options)
        answers.append(answer_RQHd.flatten(0, 1))
    return torch.cat(answers).index_select(0, row_tree.answer_P)[None], None


def _gathered(values_PE: Tensor, place_RN: Tensor, heads: int) -> Tensor:
    """Return the values of rows' places, (R, H, N, d)."""
    rows = values_PE.index_select(0, place_RN.flatten())
    return rows.view(*place_RN.shape, heads, -1).transpose(1, 2)


_sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
ALL_ATTENTION_FUNCTIONS.register("sdpa", attend)


def row_tree(ids_BT: Tensor, action_mask_BT: Tensor) -> RowTree:
    """Return rows as prefix trees.

    Args:
        ids_BT: Right-padded token ids.
        action_mask_BT: True on sampled tokens, at least one; never in the first column.

    """
    ids, mask = ids_BT.cpu(), action_mask_BT.cpu()
    tree = prefix_tree(ids, _read(mask))
    place_M = tree.place_BT[:, :-1][mask[:, 1:]]
    first_U, prediction_M = _distinct(place_M, ids[mask])
    parts = (tensor.to(ids_BT.device) for tensor in (place_M, first_U, prediction_M))
    return RowTree(tree.to(ids_BT.device), *parts)


def tree_work(tree: RowTree, *, pair_cost: float) -> float:
    """Return the estimated work of a pass over trees, in that of one place without attention."""
    return len(tree.tree.ids_P) + pair_cost * tree.tree.n_pairs


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
