"""Log-probabilities of gold answers at several contexts of a conversation, in one forward.

The row goes through the model once. The gold answers follow as copies: each sees the row up to the
end of its context, and itself, at the positions it would have there. So a context costs only the
tokens of its answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from rltune.maths.checks import at_least_float32
from rltune.policy.gold import GoldCopy
from rltune.policy.kv_cache import KVCache, keeping, new_kv_cache
from rltune.policy.precision import computing
from rltune.policy.row_tree import attention_mask


@torch.no_grad()
def gold_logprobs(
    model: PreTrainedModel,
    ids_BT: Tensor,
    copies_B: Sequence[Sequence[GoldCopy]],
    *,
    temperature: float = 1.0,
    chunk: int = 4096,
    prefix: KVCache | None = None,
) -> Tensor:
    """Return the mean log-probability of each copy's scored tokens, (B, J), in nats.

    Equal to a separate forward for each context and answer. J is the largest number of copies of
    a row; NaN where a row has fewer. It is float32, and no gradient flows. Without `prefix`, the
    rows are read up to the last context that is asked for: the responses after it are left out.

    Args:
        model: A causal LM with full attention in every layer, `sdpa` or `eager`.
        ids_BT: Token ids of whole conversations, right-padded.
        copies_B: The copies of each row; may be empty.
        temperature: Logits are divided by it; 1.0 in the papers.
        chunk: Scored tokens whose logits are held at once; >= 1.
        prefix: Keys and values of `ids_BT` (the last column may be missing) from an earlier
            forward; it is used up. None: they are made here.

    Raises:
        ValueError: The rows differ in number, a context is longer than its row, the prefix is too
            short, the model's attention cannot be masked freely, or a number is out of range.

    """
    _require(model, ids_BT, copies_B, temperature=temperature, chunk=chunk)
    layout = _lay_out(ids_BT, copies_B)
    if not layout.ids_BP.numel():
        return ids_BT.new_full((len(ids_BT), 0), torch.nan, dtype=torch.float32)
    backbone, width = model.base_model, int(layout.seen_BP.max())
    with computing(backbone):
        past = prefix
        if past is None:
            past = new_kv_cache(model)
            if width:
                backbone(input_ids=ids_BT[:, :width], **keeping(past))
        if past.get_seq_length() < width:
            raise ValueError(
                f"the prefix holds {past.get_seq_length()} tokens of each row; the longest context "
                f"needs {width}."
            )
        hidden_BPD = backbone(
            input_ids=layout.ids_BP,
            attention_mask=_attention_mask(model, layout, width=past.get_seq_length()),
            position_ids=layout.positions_BP,
            **keeping(past),
        ).last_hidden_state
    hidden_MD = at_least_float32(hidden_BPD[layout.is_scored_BP])
    target_M = layout.targets_BP[layout.is_scored_BP]
    logp_M = _head_logprobs(model, hidden_MD, target_M, temperature=temperature, chunk=chunk)
    return _copy_means(logp_M, layout, n_copies=max(len(copies) for copies in copies_B))


def _require(
    model: PreTrainedModel,
    ids_BT: Tensor,
    copies_B: Sequence[Sequence[GoldCopy]],
    *,
    temperature: float,
    chunk: int,
) -> None:
    if not temperature > 0 or chunk < 1:
        raise ValueError(
            f"temperature is {temperature!r} and chunk {chunk!r}; they must be positive."
        )
    if ids_BT.ndim != 2 or len(ids_BT) != len(copies_B):
        raise ValueError(
            f"ids_BT has shape {tuple(ids_BT.shape)} and there are copies for {len(copies_B)} rows;"
            " expected (B, T) and one sequence of copies per row."
        )
    longest = max((copy.context_end for copies in copies_B for copy in copies), default=0)
    if longest > ids_BT.shape[1]:
        raise ValueError(f"a context of {longest} tokens in rows of {ids_BT.shape[1]}.")
    attention = model.config._attn_implementation
    kinds = getattr(model.config, "layer_types", None) or ["full_attention"]
    window = getattr(model.config, "sliding_window", None)
    if attention not in ("sdpa", "eager") or window or set(kinds) != {"full_attention"}:
        raise ValueError(
            f"{type(model).__name__} has {attention} attention, layers {sorted(set(kinds))} and "
            f"sliding window {window}; gold answers need sdpa or eager attention over the whole "
            "context. Load it with attn_implementation='sdpa', or use another model."
        )


@dataclass(frozen=True, slots=True)
class _Layout:
    """The copies of each row side by side; column p reads a token and predicts the next one.

    A copy begins with the last token of its context, which predicts its first token, and ends
    before its last scored token. Unused columns have copy -1.
    """

    ids_BP: Tensor
    targets_BP: Tensor
    positions_BP: Tensor
    seen_BP: Tensor  # columns of the row that are seen, besides the copy itself
    copy_BP: Tensor
    is_scored_BP: Tensor


def _lay_out(ids_BT: Tensor, copies_B: Sequence[Sequence[GoldCopy]]) -> _Layout:
    rows = ids_BT.tolist()
    table = []
    for row, copies in zip(rows, copies_B, strict=True):
        cells = []
        for index, gold in enumerate(copies):
            n, at = gold.n_read, gold.context_end - 1
            read = (row[at], *gold.ids[: n - 1])
            for step, (token, target) in enumerate(zip(read, gold.ids[:n], strict=True)):
                cells.append((token, target, at + step, at, index, gold.scored[step]))
        table.append(cells)
    width = max(map(len, table), default=0)
    unused = (0, 0, 0, 0, -1, False)
    padded = [[*cells, *[unused] * (width - len(cells))] for cells in table]
    fields_BP6 = torch.tensor(padded, dtype=torch.int64).view(len(table), width, len(unused))
    ids, targets, positions, seen, copy, is_scored = fields_BP6.to(ids_BT.device).unbind(-1)
    return _Layout(ids, targets, positions, seen, copy, is_scored.bool())


def _attention_mask(model: PreTrainedModel, layout: _Layout, *, width: int) -> Tensor:
    """Return what each column may see, (B, 1, P, width + P): its context, and its copy so far.

    A column always sees itself: an attention over nothing would be NaN, which a product with
    weight 0 spreads to other columns.
    """
    place_W = torch.arange(width, device=layout.ids_BP.device)
    context_BPW = place_W < layout.seen_BP[..., None]
    own_BPP = (layout.copy_BP[:, :, None] == layout.copy_BP[:, None, :]).tril()
    return attention_mask(model.base_model, torch.cat([context_BPW, own_BPP], 2))


def _head_logprobs(
    model: PreTrainedModel, hidden_MD: Tensor, ids_M: Tensor, *, temperature: float, chunk: int
) -> Tensor:
    head = model.get_output_embeddings()
    parts = [
        -cross_entropy(at_least_float32(head(hidden)) / temperature, ids, reduction="none")
        for hidden, ids in zip(
            torch.split(hidden_MD, chunk), torch.split(ids_M, chunk), strict=True
        )
    ]
    return torch.cat(parts)


def _copy_means(logp_M: Tensor, layout: _Layout, *, n_copies: int) -> Tensor:
    row_M = layout.is_scored_BP.nonzero()[:, 0]
    place_M = row_M * n_copies + layout.copy_BP[layout.is_scored_BP]
    start = logp_M.new_zeros(len(layout.ids_BP) * n_copies)
    total = start.index_add(0, place_M, logp_M)
    count = start.index_add(0, place_M, torch.ones_like(logp_M))
    return (total / count).view(-1, n_copies)  # 0 / 0 is NaN: no such copy
