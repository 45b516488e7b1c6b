"""Episodes as padded arrays: what the policy sampled, where, and what it earned."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from rltune.types import Episode


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows of one training step, right-padded.

    Attributes:
        ids_NT: Token ids of whole conversations; a contiguous row has the context that each of its
            tokens was sampled in.
        action_mask_NT: True on exactly the tokens that the policy sampled, end tokens included, of
            rows that count; nowhere in a row with a fault.
        turn_ids_NT: Turn index of each sampled token, -1 elsewhere.
        rollout_logprobs_NT: What the engine reported when it sampled; 0 elsewhere.
        rewards_NT: The episode's reward on its last sampled token.
        turn_rewards_NT: Each turn's reward on its last sampled token.
        rewards_N: The episode's reward.
        success_N: Whether the episode is a success: the one threshold that all credit goes by.
        group_N: Prompt index; equal values form a group.
        episode_N: Index of the episode in the step.
        is_valid_N: False for an episode with a fault: it teaches nothing, and the others' rewards
            are compared without it.

    """

    ids_NT: NDArray[np.int64]
    action_mask_NT: NDArray[np.bool_]
    turn_ids_NT: NDArray[np.int64]
    rollout_logprobs_NT: NDArray[np.float32]
    rewards_NT: NDArray[np.float32]
    turn_rewards_NT: NDArray[np.float32]
    rewards_N: NDArray[np.float32]
    success_N: NDArray[np.bool_]
    group_N: NDArray[np.int64]
    episode_N: NDArray[np.int64]
    is_valid_N: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.group_N)

    def rows(self, index: NDArray[np.int64]) -> "TokenBatch":
        """Return the given rows, in their order, cut to their own longest length."""
        width = int(self.lengths_N[index].max(initial=1))
        columns = {field.name: getattr(self, field.name)[index] for field in fields(self)}
        return TokenBatch(
            **{name: x[:, :width] if name.endswith("_NT") else x for name, x in columns.items()}
        )

    @property
    def lengths_N(self) -> NDArray[np.int64]:
        """Tokens of each row up to its last sampled one."""
        columns = np.arange(1, self.ids_NT.shape[1] + 1)
        return np.asarray((self.action_mask_NT * columns).max(axis=1, initial=0), dtype=np.int64)


def to_batch(episodes: Sequence[Episode], *, pad_id: int) -> TokenBatch:
    """Lay episodes out as rows.

    An episode without a sampled token (its first prompt filled the context) is a row of padding: it
    keeps its place in its group and trains nothing. One with a fault keeps its tokens, and none of
    them is trained.
    """
    n = len(episodes)
    width = max(1, *(_n_tokens(episode) for episode in episodes))
    ids = np.full((n, width), pad_id, dtype=np.int64)
    mask = np.zeros((n, width), dtype=np.bool_)
    turn_ids = np.full((n, width), -1, dtype=np.int64)
    logprobs = np.zeros((n, width), dtype=np.float32)
    rewards_NT = np.zeros((n, width), dtype=np.float32)
    turn_rewards_NT = np.zeros((n, width), dtype=np.float32)
    for row, episode in enumerate(episodes):
        end = 0
        for index, turn in enumerate(episode.turns):
            start = end + len(turn.prompt_ids)
            ids[row, end:start] = turn.prompt_ids
            end = start + len(turn.sampled_ids)
            ids[row, start:end] = turn.sampled_ids
            if not episode.fault:
                mask[row, start:end] = True
                turn_ids[row, start:end] = index
                logprobs[row, start:end] = turn.logprobs
                turn_rewards_NT[row, end - 1] = turn.reward
        if end and not episode.fault:
            rewards_NT[row, end - 1] = episode.reward
    return TokenBatch(
        ids_NT=ids,
        action_mask_NT=mask,
        turn_ids_NT=turn_ids,
        rollout_logprobs_NT=logprobs,
        rewards_NT=rewards_NT,
        turn_rewards_NT=turn_rewards_NT,
        rewards_N=np.array([episode.reward for episode in episodes], dtype=np.float32),
        success_N=np.array([episode.success for episode in episodes], dtype=np.bool_),
        group_N=np.array([episode.group for episode in episodes], dtype=np.int64),
        episode_N=np.arange(n, dtype=np.int64),
        is_valid_N=np.array([not episode.fault for episode in episodes], dtype=np.bool_),
    )


def _n_tokens(episode: Episode) -> int:
    return sum(len(turn.prompt_ids) + len(turn.sampled_ids) for turn in episode.turns)
