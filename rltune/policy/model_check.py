"""Checks on a few tokens that a model can be sampled and trained here, when it is loaded.

Any causal LM may be named, but some do more than this package reproduces: they scale or cap logits
after the head, carry a state through padding, or count positions from a mask. Such a model would
silently be trained as another one.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from rltune.errors import InputError, Problem
from rltune.policy.decode import TransformersDecoder
from rltune.policy.dropout import dropouts
from rltune.policy.logprobs import action_hidden, head_weight
from rltune.policy.precision import TOLERANCE, compute_dtype, computing
from rltune.policy.row_tree import row_tree
from rltune.policy.static_decode import StaticDecoder

_LONG, _SHORT, _MORE = 7, 3, 2  # tokens of the rows, and of what is appended to them
_ATTENTION = {"full_attention", "sliding_attention"}  # layers that keep keys and values


def require_fit(
    model: PreTrainedModel, tokenizer: Tokenizer, decoder: TransformersDecoder | StaticDecoder
) -> None:
    """Raise when our logprobs are not the model's own.

    Args:
        model: Loaded, on its device, in eval mode.
        tokenizer: Its tokenizer.
        decoder: Decodes for an engine.

    Raises:
        InputError: The tokenizer has more ids than the model, the head has a bias, logits are
            changed after the head, or a row's logprobs depend on the rows beside it.

    """
    n_ids, largest = len(model.get_input_embeddings().weight), max(tokenizer.get_vocab().values())
    if largest >= n_ids:
        what = f"its tokenizer has ids up to {largest}, and the model knows {n_ids}."
        raise _unfit(what, "Save the model with the tokenizer that it was trained with.")
    try:
        head_weight(model)
    except ValueError as error:
        raise _unfit(f"{error}.", "Use another model.") from error
    name = type(model).__name__
    if others := sorted(set(getattr(model.config, "layer_types", None) or []) - _ATTENTION):
        what = f"{name} has layers of kind {', '.join(others)}, which cannot leave out padding."
        raise _unfit(what, "Use a model of attention layers.")
    try:
        after_head, batch = _gaps(model, decoder)
    except Exception as error:  # whatever a foreign model raises
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise _unfit(f"{name} cannot be run over a few tokens ({why}).", "Use another.") from error
    limit = TOLERANCE[compute_dtype(model.base_model)]
    if not after_head <= limit or getattr(model.config, "final_logit_softcapping", None):
        what = f"{name} scales or caps its logits after the head, which is not supported."
        raise _unfit(what, "Use another model.")
    if not batch <= limit:
        what = f"{name} gives a row other logprobs in a batch than alone (by {batch:.3g}): its "
        what += "attention cannot leave out padding."
        raise _unfit(what, "Use another model.")


def require_context(model: PreTrainedModel, max_context: int, *, engine: str) -> None:
    """Raise when conversations may become longer than the model can read.

    Args:
        model: The policy.
        max_context: Of the config, in tokens.
        engine: `torch` shows every layer the whole context, also where it should see a window.

    Raises:
        InputError: They may.

    """
    config = model.config
    positions = getattr(config, "max_position_embeddings", None)
    if positions and positions < max_context and _has_position_table(model, positions):
        raise _too_long(
            f"{type(model).__name__} has position embeddings for {positions} tokens.", positions
        )
    window = _window(model)
    if engine == "torch" and window and window < max_context:
        what = f"{type(model).__name__} has layers that see only the last {window} tokens, and "
        what += "rollout.engine torch would show them all."
        raise _too_long(what, window)


def why_rows(model: PreTrainedModel, *, max_context: int) -> str | None:
    """Return why rows of a model must be run as they are; None where trees give their numbers.

    Args:
        model: On its device, in eval mode.
        max_context: Longest row, in tokens.

    """
    config, name = model.config, type(model).__name__
    if (attention := config._attn_implementation) != "sdpa":
        return f"{attention} attention does not run the rows of a tree; sdpa does"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if other := sorted(kinds - {"full_attention", "sliding_attention"}):
        return f"{name} has layers of the kind {other[0]}, which carry a state from token to token"
    if (window := _window(model)) and window < max_context:
        return f"{name} has layers that see only the last {window} tokens of a row"
    if dropouts(model):
        return "policy.lora.dropout drops other inputs in each row"
    gap = _tree_gap(model)
    if not gap <= TOLERANCE[compute_dtype(model.base_model)]:
        return f"{name} gives other logprobs in a tree (by {gap:.3g})"
    return None


def _has_position_table(model: PreTrainedModel, positions: int) -> bool:
    """Return whether positions are looked up in a finite table (OPT's has two more rows)."""
    tables = (m for m in model.base_model.modules() if isinstance(m, torch.nn.Embedding))
    return any(positions <= table.num_embeddings <= positions + 2 for table in tables)


def _window(model: PreTrainedModel) -> int | None:
    """Return how many tokens some layers see; None where all of them see the whole row."""
    config = model.config
    kinds = getattr(config, "layer_types", None) or []
    is_on = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return getattr(config, "sliding_window", None) if is_on else None


def _too_long(what: str, limit: int) -> InputError:
    return InputError(Problem("rollout.max_context", what, action=f"Give at most {limit}."))


def _unfit(what: str, action: str) -> InputError:
    return InputError(Problem("policy.model", what, action=action))


@torch.no_grad()
def _gaps(
    model: PreTrainedModel, decoder: TransformersDecoder | StaticDecoder
) -> tuple[float, float]:
    """Return the distance of our logprobs from the model's: after the head, and in a padded batch.

    Two rows of different lengths get two more tokens each, the short one padded.
    """
    n_ids = len(model.get_input_embeddings().weight)
    ids_BT = (torch.arange(2 * (_LONG + _MORE)) * 7919 % n_ids).view(2, -1).to(model.device)
    lengths = (_LONG, _SHORT)
    rows = [ids[None, : n + _MORE] for ids, n in zip(ids_BT, lengths, strict=True)]
    alone = [_own_logprobs(model, row) for row in rows]
    after_head = max(
        _gap(own[n - 1 :], _our_logprobs(model, row, first=n))
        for own, row, n in zip(alone, rows, lengths, strict=True)
    )
    wanted = [own[[n - 1, n + _MORE - 1]] for own, n in zip(alone, lengths, strict=True)]
    return after_head, _gap(torch.stack(wanted, 1), _decoded(decoder, ids_BT, lengths))


@torch.no_grad()
def _tree_gap(model: PreTrainedModel) -> float:
    """Return the largest distance of a logprob in a tree from that in its row."""
    ids_BT = (torch.arange(3 * 12) * 7919 % len(head_weight(model))).view(3, -1).to(model.device)
    ids_BT[1, :5], ids_BT[2, :8] = ids_BT[0, :5], ids_BT[0, :8]
    mask = torch.ones_like(ids_BT, dtype=torch.bool)
    mask[:, 0] = False
    backbone, tree = model.base_model, row_tree(ids_BT, mask)
    rows, packed = (action_hidden(backbone, ids_BT, mask, tree=t) for t in (None, tree))
    head = head_weight(model).T
    return _gap(torch.log_softmax(rows @ head, -1), torch.log_softmax(packed @ head, -1))


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def _own_logprobs(model: PreTrainedModel, ids_1T: Tensor) -> Tensor:
    """Return (T, V) by the model's own forward pass."""
    with computing(model.base_model):
        logits_1TV = model(input_ids=ids_1T, use_cache=False).logits
    return torch.log_softmax(logits_1TV[0].float(), -1)


def _our_logprobs(model: PreTrainedModel, ids_1T: Tensor, *, first: int) -> Tensor:
    """Return (T - first + 1, V) as tokens are scored in training, with padding after them."""
    padded = torch.cat([ids_1T, ids_1T[:, :2]], 1)
    mask = torch.zeros_like(padded, dtype=torch.bool)
    mask[:, first : ids_1T.shape[1] + 1] = True
    hidden_MD = action_hidden(model.base_model, padded, mask)
    return torch.log_softmax(hidden_MD @ head_weight(model).T, -1)


def _decoded(
    decoder: TransformersDecoder | StaticDecoder, ids_BT: Tensor, lengths: tuple[int, int]
) -> Tensor:
    """Return (2, B, V) as an engine decodes: after the rows, and after what is appended to them."""
    rows = [ids_T.tolist() for ids_T in ids_BT]
    cache: Any = decoder.empty_cache()
    first = [row[:n] for row, n in zip(rows, lengths, strict=True)]
    more = [row[n : n + _MORE] for row, n in zip(rows, lengths, strict=True)]
    scores = [decoder.extend(cache, first, [0] * len(rows)), decoder.extend(cache, more, lengths)]
    return torch.log_softmax(torch.stack(scores), -1)
