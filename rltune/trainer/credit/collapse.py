"""Collapse signals of a step: responses of some groups, scored under each other's prompts."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rltune.policy.load import Policy
from rltune.signals.collapse import collapse_signals
from rltune.types import Episode


def collapse_metrics(
    policy: Policy,
    episodes: Sequence[Episode],
    *,
    prompts: int,
    score: Callable[[Tensor, Tensor], Tensor],
) -> dict[str, float]:
    """Cross-score the first responses of up to `prompts` groups; empty below two.

    The first valid episode of each group stands for it. Costs one forward pass per prompt over as
    many rows. Nothing is drawn at random, so measuring does not change a trial.

    Args:
        policy: Where its weights are, and how rows are padded.
        episodes: Of a step.
        prompts: Most groups.
        score: Returns the policy's logprobs (M,) of the masked tokens of ids, both (B, T), at the
            temperature that they were sampled with.

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
    columns = [_logprobs(policy, context, responses, score) for context in contexts]
    signals = collapse_signals(torch.stack(columns, dim=1))
    return {
        "collapse/retrieval_accuracy": signals.retrieval_accuracy,
        "collapse/retrieval_chance": signals.chance,
        "collapse/mutual_information": signals.mutual_information,
        "collapse/conditional_entropy": signals.conditional_entropy,
        "collapse/reasoning_entropy": signals.reasoning_entropy,
    }


def _logprobs(
    policy: Policy,
    context: list[int],
    responses: list[list[int]],
    score: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return log p(response | context) of each response, summed over its tokens."""
    width = len(context) + max(map(len, responses))
    ids = torch.full((len(responses), width), policy.pad_id)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for row, response in enumerate(responses):
        end = len(context) + len(response)
        ids[row, :end] = torch.tensor(context + response)
        mask[row, len(context) : end] = True
    ids, mask = ids.to(policy.model.device), mask.to(policy.model.device)
    logp_M = score(ids, mask)
    return logp_M.new_zeros(mask.shape).masked_scatter(mask, logp_M).sum(dim=1)
