"""Information gain of a batch: gold answers scored at every context of its episodes."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rltune.policy.gold import GoldCopy, encode_gold
from rltune.policy.gold_scores import gold_logprobs
from rltune.policy.load import Policy
from rltune.rollout.tokens import TokenBatch
from rltune.signals.info_gain import Gains, IgType, InformationGain, best_alias
from rltune.trainer.learner import by_length
from rltune.types import Episode


def information_gain(
    policy: Policy,
    batch: TokenBatch,
    episodes: Sequence[Episode],
    *,
    ig_type: IgType,
    n_turns: int,
    micro_batch_size: int,
) -> Gains:
    """Return what each turn added to the gold answer's probability under the current policy.

    Costs one forward pass over the rows and their gold answers. A row that is not trained on has no
    gain, nor has a turn whose environment knows no gold answer; a dead end is probability 0.

    Args:
        policy: Scores the gold answers.
        batch: Rows of the step.
        episodes: All episodes of the step, played with the gold probe.
        ig_type: `prob_diff` or `log_prob_diff`.
        n_turns: K, the number of turn columns.
        micro_batch_size: Rows per forward pass.

    """
    device = policy.model.device
    mean_logp_NC = torch.full((len(batch), n_turns), torch.nan, device=device)
    n_contexts_N = torch.zeros(len(batch), dtype=torch.int64, device=device)
    is_trained_N: NDArray[np.bool_] = np.any(batch.action_mask_NT, axis=1)
    for index in by_length(batch, micro_batch_size):
        rows = index[is_trained_N[index]]
        if not len(rows):
            continue
        played = [episodes[row] for row in batch.episode_N[rows]]
        answers = [_copies(policy, episode) for episode in played]
        ids = torch.from_numpy(batch.rows(rows).ids_NT).to(device)
        scores_BJ = gold_logprobs(policy.model, ids, [[copy for _, copy in own] for own in answers])
        contexts_BJ = torch.full(scores_BJ.shape, -1, dtype=torch.int64, device=device)
        for row, own in enumerate(answers):
            contexts_BJ[row, : len(own)] = torch.tensor([context for context, _ in own])
        best_BC = best_alias(scores_BJ, contexts_BJ, n_contexts=n_turns)
        places = torch.from_numpy(rows).to(device)
        mean_logp_NC[places] = best_BC.where(~_dead_ends(played, n_turns).to(device), -torch.inf)
        n_contexts_N[places] = torch.tensor([len(e.turns) for e in played], device=device)
    return InformationGain(ig_type)(mean_logp_NC, n_contexts_N)


def _copies(policy: Policy, episode: Episode) -> list[tuple[int, GoldCopy]]:
    """Return the gold answers of an episode, each with the index of its context."""
    copies, end = [], 0
    for context, turn in enumerate(episode.turns):
        start = end + len(turn.prompt_ids)
        if turn.gold is not None:
            before, after = turn.gold.before, turn.gold.after
            for answer in turn.gold.golds:
                ids, scored = encode_gold(policy.tokenizer, before, answer, after)
                copies.append((context, GoldCopy(start, ids, scored)))
        end = start + len(turn.sampled_ids)
    return copies


def _dead_ends(episodes: Sequence[Episode], n_turns: int) -> torch.Tensor:
    """Return, (B, K) boolean, where a perfect player has nothing right to say any more."""
    found = np.zeros((len(episodes), n_turns), dtype=np.bool_)
    for row, episode in enumerate(episodes):
        found[row, : len(episode.turns)] = [
            turn.gold is not None and not turn.gold.golds for turn in episode.turns
        ]
    return torch.from_numpy(found)
