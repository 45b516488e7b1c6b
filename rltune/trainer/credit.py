"""From rewards and signals to an advantage for each sampled token."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rltune.advantages.gae import gae
from rltune.advantages.grpo import broadcast, grpo
from rltune.maths.masked import masked_whiten
from rltune.rollout.filter import group_scores, loss_scale, select_groups
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema import GaeConfig, GrpoConfig, RolloutFilterConfig
from rltune.trainer.learner import Signals


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Which groups are trained on.

    A group without a single sound row is no candidate: it is neither kept nor dropped.

    Attributes:
        keep_N: Rows to train on: the sound rows of the groups that were kept.
        drop_N: Rows of the groups that were dropped.
        scores_G: Score of each group, over its sound rows; 0 where fewer than two are.
        kept_ratio: Share of the candidates that were kept; 1 without any.
        zero_count: Candidates whose score is zero.
        scale: Factor on the advantages.

    """

    keep_N: np.ndarray
    drop_N: np.ndarray
    scores_G: np.ndarray
    kept_ratio: float
    zero_count: int
    scale: float

    @property
    def is_empty(self) -> bool:
        """Whether the filter dropped all that there was to train on."""
        return bool(self.drop_N.any()) and not self.keep_N.any()


def filter_groups(
    rewards_N: np.ndarray,
    is_sound_N: np.ndarray,
    *,
    groups: int,
    config: RolloutFilterConfig,
    zero_tol: float = 1e-10,
) -> FilterResult:
    """Choose the groups to train on; rows come group by group, all groups of one size."""
    sound_GM = is_sound_N.reshape(groups, -1)
    scores_G = _scores(rewards_N.astype(np.float64).reshape(groups, -1), sound_GM, config.metric)
    is_candidate_G = sound_GM.any(axis=1)
    keep_G = np.zeros(groups, dtype=np.bool_)
    keep_G[is_candidate_G] = select_groups(
        scores_G[is_candidate_G],
        strategy=config.strategy,
        value=config.value,
        mode=config.mode,
        kind=config.type,
        include_zero=config.include_zero,
    )
    candidates = int(is_candidate_G.sum())
    ratio = float(keep_G.sum() / candidates) if candidates else 1.0
    size = sound_GM.shape[1]
    return FilterResult(
        keep_N=np.repeat(keep_G, size) & is_sound_N,
        drop_N=np.repeat(is_candidate_G & ~keep_G, size),
        scores_G=scores_G,
        kept_ratio=ratio,
        zero_count=int((np.abs(scores_G[is_candidate_G]) <= zero_tol).sum()),
        scale=loss_scale(ratio, config.loss_scaling),
    )


def _scores(rewards_GM: np.ndarray, sound_GM: np.ndarray, metric: str) -> np.ndarray:
    """Return the spread of each group's sound rewards.

    A group of one has none; the schema allows it by config only where the filter is off.
    """
    scores_G = np.zeros(len(rewards_GM))
    for group, (rewards_M, sound_M) in enumerate(zip(rewards_GM, sound_GM, strict=True)):
        if sound_M.sum() > 1:
            scores_G[group] = group_scores(rewards_M[None, sound_M], metric=metric)[0]
    return scores_G


def apply_filter(batch: TokenBatch, chosen: FilterResult, *, on_drop: str) -> TokenBatch:
    """Take the rows that are not trained on out of training.

    `drop` removes those of dropped groups, which can change the number of optimiser steps. `mask`
    leaves them in place with nothing to train on, so that every condition makes the same number of
    steps. Rows with a fault stay in any case: the number must not depend on a service that is down.
    """
    if chosen.keep_N.all():
        return batch
    masked = replace(batch, action_mask_NT=batch.action_mask_NT & chosen.keep_N[:, None])
    return masked.rows(np.flatnonzero(~chosen.drop_N)) if on_drop == "drop" else masked


@dataclass(frozen=True, slots=True)
class Credit:
    """What the objective learns from, (N, T), 0 outside the action mask.

    Attributes:
        advantages_NT: One advantage per sampled token.
        returns_NT: The critic's targets; None without a critic.

    """

    advantages_NT: Tensor
    returns_NT: Tensor | None


def assign_credit(
    batch: TokenBatch, signals: Signals, *, config: GaeConfig | GrpoConfig, scale: float
) -> Credit:
    """Estimate advantages: GAE's whitened over the batch, GRPO's relative to their group.

    A row with a fault has none, and the others have those that they would have without it.
    """
    device = signals.old_logp_NT.device
    mask_NT = torch.from_numpy(batch.action_mask_NT).to(device)
    if isinstance(config, GrpoConfig):
        sound_N = torch.from_numpy(batch.is_sound_N).to(device)
        rewards_N = torch.from_numpy(batch.rewards_N).to(device)
        group_N = torch.from_numpy(batch.group_N).to(device)
        advantages_N = torch.zeros_like(rewards_N)
        advantages_N[sound_N] = grpo(
            rewards_N[sound_N], group_N[sound_N], normalize_std=config.normalize_std
        )
        return Credit(broadcast(advantages_N, mask_NT) * scale, None)
    if signals.values_NT is None:
        raise ValueError("advantage.kind gae needs a critic's values")
    is_trained_N1 = batch.action_mask_NT.any(axis=1, keepdims=True)  # False: a masked-out row
    rewards_NT = np.where(is_trained_N1, batch.rewards_NT, 0)
    result = gae(
        torch.from_numpy(rewards_NT).to(device),
        signals.values_NT,
        mask_NT,
        gamma=config.gamma,
        lam=config.lam,
    )
    return Credit(masked_whiten(result.advantages_NT, mask_NT) * scale, result.returns_NT)
