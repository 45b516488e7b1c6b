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

    Attributes:
        keep_N: Rows whose group was kept.
        scores_G: Score of each group.
        kept_ratio: Share of groups that were kept.
        zero_count: Groups whose score is zero.
        scale: Factor on the advantages.

    """

    keep_N: np.ndarray
    scores_G: np.ndarray
    kept_ratio: float
    zero_count: int
    scale: float


def filter_groups(
    rewards_N: np.ndarray, *, groups: int, config: RolloutFilterConfig, zero_tol: float = 1e-10
) -> FilterResult:
    """Choose the groups to train on; rows come group by group, all groups of one size."""
    rewards_GM = rewards_N.astype(np.float64).reshape(groups, -1)
    is_single = rewards_GM.shape[1] == 1  # the schema allows it only where the filter is off
    scores_G = np.zeros(groups) if is_single else group_scores(rewards_GM, metric=config.metric)
    keep_G = select_groups(
        scores_G,
        strategy=config.strategy,
        value=config.value,
        mode=config.mode,
        kind=config.type,
        include_zero=config.include_zero,
    )
    ratio = float(keep_G.mean())
    return FilterResult(
        keep_N=np.repeat(keep_G, len(rewards_N) // groups),
        scores_G=scores_G,
        kept_ratio=ratio,
        zero_count=int((np.abs(scores_G) <= zero_tol).sum()),
        scale=loss_scale(ratio, config.loss_scaling),
    )


def apply_filter(batch: TokenBatch, keep_N: np.ndarray, *, on_drop: str) -> TokenBatch:
    """Take the dropped rows out of training.

    `drop` removes them, which can change the number of optimiser steps. `mask` leaves the rows in
    place with nothing to train on, so that every condition makes the same number of steps.
    """
    if keep_N.all():
        return batch
    if on_drop == "drop":
        return batch.rows(np.flatnonzero(keep_N))
    return replace(batch, action_mask_NT=batch.action_mask_NT & keep_N[:, None])


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
    """Estimate advantages: GAE's whitened over the batch, GRPO's relative to their group."""
    device = signals.old_logp_NT.device
    mask_NT = torch.from_numpy(batch.action_mask_NT).to(device)
    if isinstance(config, GrpoConfig):
        advantages_N = grpo(
            torch.from_numpy(batch.rewards_N).to(device),
            torch.from_numpy(batch.group_N).to(device),
            normalize_std=config.normalize_std,
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
