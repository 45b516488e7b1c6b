"""From rewards and signals to an advantage for each sampled token.

Data flows one way: estimator -> credit of turns -> weights of tokens -> scale of the filter. This
file holds the first stage; the others are `attribution` and `shaping`, and the whole is `assign`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rltune.advantages import ESTIMATORS
from rltune.advantages.gae import GaeResult, gae
from rltune.advantages.gae_bilevel import gae_bilevel
from rltune.advantages.grpo import broadcast
from rltune.advantages.reinforce import reinforce_pp
from rltune.maths.masked import masked_whiten
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.advantage import (
    Advantage,
    CustomAdvantageConfig,
    GaeBilevelConfig,
    GaeConfig,
    ReinforcePpConfig,
)
from rltune.trainer.credit.custom_estimator import own_advantages
from rltune.trainer.train_state import Signals


@dataclass(frozen=True, slots=True)
class Credit:
    """What the objective learns from, (N, T), 0 outside the action mask.

    Attributes:
        advantages_NT: One advantage per sampled token.
        returns_NT: The critic's targets; None without a critic.
        clip_scale_NT: Factor on the clip bounds of a token's turn; None where it is 1 everywhere.
        weights_NT: Factor on a token's loss that corrects for the engine; None likewise.

    """

    advantages_NT: Tensor
    returns_NT: Tensor | None = None
    clip_scale_NT: Tensor | None = None
    weights_NT: Tensor | None = None


def estimate(batch: TokenBatch, signals: Signals, config: Advantage) -> Credit:
    """Return the advantages of the estimator alone, on all tokens of an episode alike or not.

    A row with a fault has none, and the others have those that they would have without it.
    """
    device = signals.old_logp_NT.device
    mask_NT = torch.from_numpy(batch.action_mask_NT).to(device)
    if config.kind in ("gae", "gae_bilevel"):
        result = _with_critic(batch, signals, config, mask_NT)
        return Credit(masked_whiten(result.advantages_NT, mask_NT), result.returns_NT)
    if config.kind == "reinforce_pp":
        rewards_NT = _trained(batch, batch.rewards_NT, device)
        to_go_NT = reinforce_pp(rewards_NT, mask_NT, gamma=config.gamma)
        return Credit(masked_whiten(to_go_NT, mask_NT))
    advantages_NT = broadcast(episode_advantages(batch, config, device=device), mask_NT)
    if config.kind == "reinforce_pp_baseline":
        advantages_NT = masked_whiten(advantages_NT, mask_NT)
    return Credit(advantages_NT)


def episode_advantages(batch: TokenBatch, config: Advantage, *, device: torch.device) -> Tensor:
    """Return one advantage per episode, from the sound ones of its group; 0 for the others.

    Raises:
        ValueError: The estimator is none of an episode, or refuses the outcomes.
        TrialError: One of a user's own fails, or returns something else than one finite number per
            episode.

    """
    outcome_N = outcome_of(batch, config).to(device)
    sound_N = torch.from_numpy(batch.is_sound_N).to(device)
    advantages_N = torch.zeros_like(outcome_N)
    if not sound_N.any():  # no estimator need know what to do with nothing
        return advantages_N
    outcome_M = outcome_N[sound_N]
    group_M = torch.from_numpy(batch.group_N).to(device)[sound_N]
    if isinstance(config, CustomAdvantageConfig):
        advantages_N[sound_N] = own_advantages(config, outcome_M, group_M)
    else:
        keywords = config.model_dump(exclude={"kind", "outcome", "shaping"})
        advantages_N[sound_N] = ESTIMATORS[config.kind](outcome_M, group_M, **keywords).detach()
    return advantages_N


def outcome_of(batch: TokenBatch, config: Advantage) -> Tensor:
    """Return what the episodes of a group are compared by, (N,), on the CPU.

    Raises:
        ValueError: The estimator compares no episodes.

    """
    if isinstance(config, GaeConfig | GaeBilevelConfig | ReinforcePpConfig):
        raise ValueError(f"advantage.kind {config.kind} gives no advantage to a whole episode")
    outcome_N = batch.success_N if config.outcome == "success" else batch.rewards_N
    return torch.from_numpy(outcome_N.astype(np.float32))


def _with_critic(
    batch: TokenBatch, signals: Signals, config: GaeConfig | GaeBilevelConfig, mask_NT: Tensor
) -> GaeResult:
    if signals.values_NT is None:
        raise ValueError(f"advantage.kind {config.kind} needs a critic's values")
    device = mask_NT.device
    if config.kind == "gae":
        rewards_NT = _trained(batch, batch.rewards_NT, device)
        return gae(rewards_NT, signals.values_NT, mask_NT, gamma=config.gamma, lam=config.lam)
    return gae_bilevel(
        _trained(batch, batch.turn_rewards_NT, device),
        signals.values_NT,
        mask_NT,
        torch.from_numpy(batch.turn_ids_NT).to(device),
        gamma=config.gamma,
        lam=config.lam,
        gamma_turn=config.gamma_turn,
        lam_turn=config.lam_turn,
    )


def _trained(batch: TokenBatch, rewards_NT: np.ndarray, device: torch.device) -> Tensor:
    """Return the rewards of the rows that are trained on; a masked-out row has none."""
    is_trained_N1 = batch.action_mask_NT.any(axis=1, keepdims=True)
    return torch.from_numpy(np.where(is_trained_N1, rewards_NT, 0)).to(device)
