"""Episodes as padded tensors: what the policy sampled, where, and what it earned."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from rltune.maths.turns import turn_count
from rltune.types import Episode

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows of one training step, right-padded: N rows of T tokens, all on one device.

    Attributes:
        ids_NT: int64: token ids of whole conversations; a contiguous row has the context that each
            of its tokens was sampled in.
        action_mask_NT: bool: True on exactly the tokens that the policy sampled, end tokens
            included, of rows that count; nowhere in a row with a fault.
        turn_ids_NT: int64: turn index of each sampled token, -1 elsewhere.
        rollout_logprobs_NT: float32: what the engine reported when it sampled; 0 elsewhere.
        rewards_NT: float32: the episode's reward on its last sampled token.
        turn_rewards_NT: float32: each turn's reward on its last sampled token.
        rewards_N: float32: the episode's reward.
        success_N: bool: whether the episode is a success: the one threshold that all credit goes
            by.
        group_N: int64: prompt index; equal values form a group.
        episode_N: int64: index of the episode in the step.
        is_valid_N: bool: False for an episode with a fault: it teaches nothing, and the others'
            rewards are compared without it.

    """

    ids_NT: Tensor
    action_mask_NT: Tensor
    turn_ids_NT: Tensor
    rollout_logprobs_NT: Tensor
    rewards_NT: Tensor
    turn_rewards_NT: Tensor
    rewards_N: Tensor
    success_N: Tensor
    group_N: Tensor
    episode_N: Tensor
    is_valid_N: Tensor

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.group_N)

    def to(self, device: torch.device) -> "TokenBatch":
        """Return the batch on a device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def rows(self, index: Tensor) -> "TokenBatch":
        """Return the given rows, in their order, cut to their own longest length."""
        return take_rows(self, index, max([1, *self.lengths_N[index].tolist()]))

    @property
    def lengths_N(self) -> Tensor:
        """Tokens of each row up to its last sampled one."""
        columns = torch.arange(1, self.ids_NT.shape[1] + 1, device=self.ids_NT.device)
        return (self.action_mask_NT * columns).amax(dim=1)

    @property
    def is_trained_N(self) -> Tensor:
        """Whether a row has a token to train on."""
        return self.action_mask_NT.any(dim=1)

    @property
    def n_turns(self) -> int:
        """K, the number of turn columns; at least 1."""
        return max(1, turn_count(self.turn_ids_NT))


def take_rows(record: Record, index: Tensor, width: int) -> Record:
    """Return some rows of a record of tensors, those of shape (N, T) cut to `width` columns."""
    taken = {}
    for field in fields(record):
        tensor = getattr(record, field.name)
        if tensor is not None:
            is_wide = field.name.endswith("_NT")
            taken[field.name] = tensor[index, :width] if is_wide else tensor[index]
    return replace(record, **taken)


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
    columns = {
        "ids_NT": ids,
        "action_mask_NT": mask,
        "turn_ids_NT": turn_ids,
        "rollout_logprobs_NT": logprobs,
        "rewards_NT": rewards_NT,
        "turn_rewards_NT": turn_rewards_NT,
        "rewards_N": np.array([episode.reward for episode in episodes], dtype=np.float32),
        "success_N": np.array([episode.success for episode in episodes], dtype=np.bool_),
        "group_N": np.array([episode.group for episode in episodes], dtype=np.int64),
        "episode_N": np.arange(n, dtype=np.int64),
        "is_valid_N": np.array([not episode.fault for episode in episodes], dtype=np.bool_),
    }
    return TokenBatch(**{name: torch.from_numpy(values) for name, values in columns.items()})


def _n_tokens(episode: Episode) -> int:
    return sum(len(turn.prompt_ids) + len(turn.sampled_ids) for turn in episode.turns)
