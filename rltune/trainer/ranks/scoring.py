"""Scores of sampled tokens by a model that is here, in shards, or at a service."""

from dataclasses import dataclass

from torch import Tensor

from rltune.losses.entropy import EntropyUse, TokenScores, chunked_logprobs_entropy
from rltune.policy.kv_cache import KVCache
from rltune.policy.load import CausalLM
from rltune.policy.logprobs import action_hidden, head_chunk, head_weight
from rltune.policy.row_tree import RowTree
from rltune.remote.model import RemoteScorer
from rltune.trainer.ranks.shard import ShardedModel


@dataclass(frozen=True, slots=True)
class ActionScores:
    """A forward pass over sampled tokens, row-major."""

    hidden_MD: Tensor  # last hidden state of the policy before each token
    tokens: TokenScores  # logprob of each token, and entropy where it was asked for


def score_actions(
    model: CausalLM | ShardedModel,
    ids_BT: Tensor,
    action_mask_BT: Tensor,
    *,
    temperature: float,
    entropy: EntropyUse = "none",
    cache: KVCache | None = None,
    tree: RowTree | None = None,
) -> ActionScores:
    """Run the policy over rows and score their sampled tokens.

    `cache` keeps keys and values. `tree` is the rows as prefix trees: the same numbers up to
    rounding, without a cache. A service gives logprobs alone, at temperature 1.
    """
    if isinstance(model, RemoteScorer):
        logp_M = model.logprobs(ids_BT, action_mask_BT)
        return ActionScores(logp_M.new_empty(len(logp_M), 0), TokenScores(logp_M, None))
    if isinstance(model, ShardedModel):
        hidden_MD, logp_M, entropy_M = model(
            _scored, ids_BT, action_mask_BT, temperature, entropy, tree
        )
        return ActionScores(hidden_MD, TokenScores(logp_M, entropy_M))
    hidden_MD = action_hidden(model.base_model, ids_BT, action_mask_BT, cache=cache, tree=tree)
    ids_M = ids_BT[action_mask_BT]
    return score_hidden(
        model, hidden_MD, ids_M, temperature=temperature, entropy=entropy, tree=tree
    )


def _scored(
    model: CausalLM,
    ids_BT: Tensor,
    action_mask_BT: Tensor,
    temperature: float,
    entropy: EntropyUse,
    tree: RowTree | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the scores of a model as tensors: what a forward pass may return."""
    scores = score_actions(
        model, ids_BT, action_mask_BT, temperature=temperature, entropy=entropy, tree=tree
    )
    return scores.hidden_MD, scores.tokens.logprobs_M, scores.tokens.entropy_M


def score_hidden(
    model: CausalLM,
    hidden_MD: Tensor,
    ids_M: Tensor,
    *,
    temperature: float,
    entropy: EntropyUse,
    tree: RowTree | None,
) -> ActionScores:
    """Score sampled tokens by the hidden states before them; equal predictions are made once."""
    tokens = chunked_logprobs_entropy(
        hidden_MD if tree is None else hidden_MD[tree.first_U],
        head_weight(model),
        ids_M if tree is None else ids_M[tree.first_U],
        temperature=temperature,
        chunk=head_chunk(model),
        entropy=entropy,
    )
    if tree is not None:
        tokens = tokens.take(tree.prediction_M)
    return ActionScores(hidden_MD, tokens)
