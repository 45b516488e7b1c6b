"""What a rank does while the others compute: weights in shards are put together by all ranks."""

import torch

from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.ranks.scoring import score_actions
from rltune.trainer.train_state import TrainState


def keep_step(train_state: TrainState, batch: TokenBatch, config: TrialConfig) -> None:
    """Add a gradient of zero, by the passes that the other ranks make at the same time."""
    ids, mask = batch.ids_NT, batch.action_mask_NT
    temperature = config.rollout.temperature
    scores = score_actions(train_state.actor, ids, mask, temperature=temperature)
    torch.autograd.backward(0.0 * scores.tokens.logprobs_M.sum())
    if train_state.critic is not None:
        values_M = train_state.critic(ids, mask, scores.hidden_MD)
        torch.autograd.backward(0.0 * values_M.sum())
