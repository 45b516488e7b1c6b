"""Log-probabilities of gold answers at several contexts of a conversation, in one forward.

`gold_logprobs`: each row goes through the model once. The gold answers follow as copies: each sees
the row up to the end of its context, and itself, at the positions it would have there. So a context
costs only the tokens of its answer.

`hidden_with_gold`: rows and answers are one prefix tree, in which an answer is a row that begins
with its context. So what answers have in common is computed once, too: those of a group at the
question, several answers to one question, an answer and what the policy itself said.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from transformers import PreTrainedModel

from rltune.maths.checks import at_least_float32
from rltune.policy.gold import GoldCopy
from rltune.policy.kv_cache import KVCache, keeping, new_kv_cache
from rltune.policy.logprobs import action_hidden
from rltune.policy.precision import computing
from rltune.policy.row_tree import RowTree, attention_mask, row_tree


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
    n_copies = max(map(len, copies_B))
    row_M = layout.is_scored_BP.nonzero()[:, 0]
    place_M = row_M * n_copies + layout.copy_BP[layout.is_scored_BP]
    return _means(logp_M, place_M, (len(ids_BT), n_copies))


@torch.no_grad()
def hidden_with_gold(
    model: PreTrainedModel,
    ids_BT: Tensor,
    action_mask_BT: Tensor,
    copies_B: Sequence[Sequence[GoldCopy]],
    *,
    chunk: int = 4096,
) -> tuple[Tensor, Tensor]:
    """Return what `action_hidden` and `gold_logprobs` do, by one pass over one prefix tree.

    The numbers are theirs up to rounding.

    Args:
        model: A causal LM whose rows may run as trees (`model_check.why_rows`).
        ids_BT: Token ids of whole conversations, right-padded.
        action_mask_BT: True on sampled tokens, at least one; never in the first column.
        copies_B: The copies of each row; may be empty.
        chunk: Scored tokens whose logits are held at once; >= 1.

    Returns:
        The hidden state before each sampled token, (M, D), row-major, and the mean log-probability
        of each copy's scored tokens, (B, J), in nats.

    Raises:
        ValueError: As `gold_logprobs`.

    """
    _require(model, ids_BT, copies_B, temperature=1.0, chunk=chunk)
    ids_RT, mask_RT = _with_answers(ids_BT, action_mask_BT, copies_B)
    tree = row_tree(ids_RT, mask_RT)
    hidden_ND = action_hidden(model.base_model, ids_RT, mask_RT, tree=tree)
    n_sampled, n_copies = int(action_mask_BT.sum()), max(map(len, copies_B))
    logp_G = _distinct_logprobs(model, hidden_ND, ids_RT[mask_RT], tree, n_sampled, chunk=chunk)
    place_A = torch.tensor(
        [row * n_copies + nth for row, own in enumerate(copies_B) for nth in range(len(own))],
        dtype=torch.int64,
        device=ids_BT.device,
    )
    answer_G = mask_RT[len(ids_BT) :].nonzero()[:, 0]
    return hidden_ND[:n_sampled], _means(logp_G, place_A[answer_G], (len(ids_BT), n_copies))


def _with_answers(
    ids_BT: Tensor, action_mask_BT: Tensor, copies_B: Sequence[Sequence[GoldCopy]]
) -> tuple[Tensor, Tensor]:
    """Return rows and after them their answers, each behind its context: ids, and what is scored.

    What a row says after the context and the answer stays in the answer's row. Nobody reads it.
    """
    (n_rows, width), device = ids_BT.shape, ids_BT.device
    row_A = [row for row, copies in enumerate(copies_B) for _ in copies]
    cells = [
        (n_rows + at, gold.context_end + nth, gold.ids[nth], gold.scored[nth])
        for at, gold in enumerate(gold for copies in copies_B for gold in copies)
        for nth in range(gold.n_read)
    ]
    if not cells:
        return ids_BT, action_mask_BT
    at, column, token, is_scored = torch.tensor(cells, device=device).unbind(-1)
    more = (0, max(0, int(column.max()) + 1 - width))
    ids_RT = pad(torch.cat([ids_BT, ids_BT[row_A]]), more)
    mask_RT = pad(torch.cat([action_mask_BT, action_mask_BT.new_zeros(len(row_A), width)]), more)
    ids_RT[at, column], mask_RT[at, column] = token, is_scored.bool()
    return ids_RT, mask_RT


def _distinct_logprobs(
    model: PreTrainedModel,
    hidden_ND: Tensor,
    ids_N: Tensor,
    tree: RowTree,
    first: int,
    *,
    chunk: int,
) -> Tensor:
    """Return the log-probability of each token of a tree from `first` on; equal ones made once."""
    which_U, place_G = torch.unique(tree.prediction_M[first:], return_inverse=True)
    index_U = tree.first_U[which_U]
    logp_U = _head_logprobs(model, hidden_ND[index_U], ids_N[index_U], temperature=1.0, chunk=chunk)
    return logp_U[place_G]


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


def _means(logp_M: Tensor, place_M: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return the mean of what has the same place in a table, laid out row by row."""
    start = logp_M.new_zeros(shape[0] * shape[1])
    total = start.index_add(0, place_M, logp_M)
    count = start.index_add(0, place_M, torch.ones_like(logp_M))
    return (total / count).view(shape)  # 0 / 0 is NaN: no such copy
