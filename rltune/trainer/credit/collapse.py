"""Collapse signals of a step: responses of some groups, scored under each other's prompts."""

from collections.abc import Sequence

import torch

from rltune.policy.load import Policy
from rltune.signals.collapse import collapse_signals
from rltune.trainer.ranks.scoring import score_actions
from rltune.types import Episode


@torch.no_grad()
def collapse_metrics(
    policy: Policy, episodes: Sequence[Episode], *, prompts: int, temperature: float
) -> dict[str, float]:
    """Cross-score the first responses of up to `prompts` groups; empty below two.

    The first valid episode of each group stands for it. Costs one forward pass per prompt over as
    many rows. Nothing is drawn at random, so measuring does not change a trial.
    """
    first: dict[int, Episode] = {}
    for episode in episodes:
        if episode.turns and episode.turns[0].sampled_ids and not episode.fault:
            first.setdefault(episode.group, episode)
    chosen = list(first.values())[:prompts]
    if len(chosen) < 2:
        return {}
    contexts = [list(episode.turns[0].prompt_ids) for episode in chosen]
    responses = [list(episode.turns[0].sampled_ids) for episode in chosen]
    columns = [
        _logprobs(policy, context, responses, temperature=temperature) for context in contexts
    ]
    signals = collapse_signals(torch.stack(columns, dim=1))
    return {
        "collapse/retrieval_accuracy": signals.retrieval_accuracy,
        "collapse/retrieval_chance": signals.chance,
        "collapse/mutual_information": signals.mutual_information,
        "collapse/conditional_entropy": signals.conditional_entropy,
        "collapse/reasoning_entropy": signals.reasoning_entropy,
    }


def _logprobs(
    policy: Policy, context: list[int], responses: list[list[int]], *, temperature: float
) -> torch.Tensor:
    """Return log p(response | context) of each response, summed over its tokens."""
    width = len(context) + max(map(len, responses))
    ids = torch.full((len(responses), width), policy.pad_id)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for row, response in enumerate(responses):
        end = len(context) + len(response)
        ids[row, :end] = torch.tensor(context + response)
        mask[row, len(context) : end] = True
    ids, mask = ids.to(policy.model.device), mask.to(policy.model.device)
    logp_M = score_actions(policy.model, ids, mask, temperature=temperature).tokens.logprobs_M
    return logp_M.new_zeros(mask.shape).masked_scatter(mask, logp_M).sum(dim=1)
