"""A few training episodes in full, with the credit of every sampled token, for people to look at.

At most `len(MOMENTS)` steps of a trial are kept, two episodes of each. Training never reads them,
and no metric and no digest depends on them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from rltune.policy.load import Policy
from rltune.policy.spans import token_spans
from rltune.rollout.tokens import TokenBatch
from rltune.store.jsonl import append_jsonl_many
from rltune.store.rundir import TrialDir
from rltune.trainer.filtering import FilterResult
from rltune.types import Episode, Turn

MOMENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the budget after which episodes are kept; the first is step 1."""

MOST_TOKENS = 400
"""Tokens of a turn whose text and credit are kept; the rest is counted."""

MOST_CHARACTERS = 6000
"""Characters of an observation that are kept."""


def replay_steps(steps: int) -> frozenset[int]:
    """Return the training steps of which episodes are kept; of 20 these are 1, 5, 10, 15, 20."""
    return frozenset(max(1, round(share * steps)) for share in MOMENTS)


def write_replays(
    trial: TrialDir,
    policy: Policy,
    episodes: Sequence[Episode],
    chosen: FilterResult,
    trained: tuple[TokenBatch, Tensor] | None,
    *,
    step: int,
    steps: int,
) -> None:
    """Append one success and one failure of a step, if it is one of which episodes are kept.

    `trained` is the batch and its advantages, (N, T); None when nothing was trained on. `steps` are
    those of the budget.
    """
    if step not in replay_steps(steps):
        return
    rows = [
        _row(policy, episodes[index], _credit(index, episodes[index], trained), step)
        | {"kept": bool(chosen.keep_N[index])}
        for index in pick(episodes, chosen.keep_N)
    ]
    append_jsonl_many(trial.replays, rows, sync=False)


def pick(episodes: Sequence[Episode], keep_N: np.ndarray) -> list[int]:
    """Return the indices of one success and one failure, as far as there are any.

    Both are of one prompt where a kept group has both, so that they can be compared move by move;
    else they are the first of the kept ones, and without these the first of all. An episode with a
    fault teaches nothing and is not shown.
    """
    valid = [i for i, episode in enumerate(episodes) if not episode.fault and episode.turns]
    kept = [i for i in valid if keep_N[i]]
    mixed = _mixed_group(episodes, kept)
    for pool in ([i for i in kept if episodes[i].group == mixed], kept, valid):
        picked = [_first(episodes, pool, success=success) for success in (True, False)]
        if None not in picked:
            break
    return [index for index in picked if index is not None]


def _mixed_group(episodes: Sequence[Episode], among: Sequence[int]) -> int | None:
    """Return the first group with a success and a failure; None when there is none."""
    outcomes: dict[int, set[bool]] = {}
    for index in among:
        outcomes.setdefault(episodes[index].group, set()).add(episodes[index].success)
    return next((group for group, seen in outcomes.items() if len(seen) == 2), None)


def _first(episodes: Sequence[Episode], among: Sequence[int], *, success: bool) -> int | None:
    return next((index for index in among if episodes[index].success is success), None)


def _credit(
    index: int, episode: Episode, trained: tuple[TokenBatch, Tensor] | None
) -> list[float] | None:
    """Return the advantage of each sampled token of an episode; None when it was not trained on."""
    if trained is None:
        return None
    batch, advantages_NT = trained
    rows = (batch.episode_N == index).nonzero()[:, 0].tolist()
    if len(rows) != 1 or batch.action_mask_NT[rows[0]].sum() != episode.n_sampled:
        return None
    credit: list[float] = advantages_NT[rows[0]][batch.action_mask_NT[rows[0]]].float().tolist()
    return credit


def _row(
    policy: Policy, episode: Episode, credit: Sequence[float] | None, step: int
) -> dict[str, Any]:
    turns, start = [], 0
    for turn in episode.turns:
        end = start + len(turn.sampled_ids)
        turns.append(_turn(policy, turn, None if credit is None else credit[start:end]))
        start = end
    return {
        "step": step,
        "task_id": episode.task_id,
        "task_seed": episode.task_seed,
        "noise_seed": episode.noise_seed,
        "group": episode.group,
        "member": episode.member,
        "success": episode.success,
        "truncated": episode.truncated,
        "reward": round(episode.reward, 6),
        "failure_class": episode.failure_class,
        "turns": turns,
        "closing": episode.closing[:MOST_CHARACTERS],
    }


def _turn(policy: Policy, turn: Turn, credit: Sequence[float] | None) -> dict[str, Any]:
    ids = list(turn.sampled_ids[:MOST_TOKENS])
    text, spans = token_spans(policy.tokenizer, ids)
    return {
        "observation": turn.observation[:MOST_CHARACTERS],
        "given": turn.response.removesuffix(policy.renderer.decode(turn.sampled_ids)),
        "tokens": [text[start:end] for start, end in spans],
        "credit": None if credit is None else [round(value, 5) for value in credit[: len(ids)]],
        "n_tokens": len(turn.sampled_ids),
        "actions": turn.actions,
        "reward": round(turn.reward, 6),
        "is_valid": turn.is_valid,
        "n_invalid": turn.n_invalid,
        "n_over_limit": turn.n_over_limit,
    }
