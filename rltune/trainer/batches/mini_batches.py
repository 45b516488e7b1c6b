"""Mini-batches: the rows of each optimiser step, drawn by row or by whole groups."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.comparability.knobs import drops_inputs
from rltune.maths.streams import permutation, stream_seed
from rltune.rollout.tokens import TokenBatch
from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.dealing import WHOLE, Share, own_micro_batches
from rltune.trainer.batches.micro_batches import Limit, MicroBatch


@dataclass(frozen=True, slots=True)
class MiniBatchPlan:
    """One optimiser step on a batch."""

    epoch: int  # pass over the batch, from 0
    nth: int  # number within the epoch, from 0
    rows: Tensor  # indices of its rows in the batch, also of those without a token to train on
    parts: tuple[MicroBatch, ...]  # its forward passes on this rank


def plan_update(
    batch: TokenBatch, config: TrialConfig, *, step: int, limit: Limit, share: Share = WHOLE
) -> tuple[MiniBatchPlan, ...]:
    """Return the optimiser steps on a batch, in their order; it follows from the arguments alone.

    Args:
        batch: Rows to train on.
        config: Of the trial.
        step: Training step, from 1.
        limit: Of a micro-batch.
        share: Of the rows of each optimiser step that this rank computes.

    """
    plans = []
    for epoch in range(config.optim.epochs):
        seed = stream_seed(config.seed, "minibatch", step, epoch)
        for nth, rows in enumerate(draw(batch, config, seed=seed)):
            parts = own_micro_batches(batch, rows, limit, share)
            plans.append(MiniBatchPlan(epoch, nth, rows, parts))
    return tuple(plans)


def draw(batch: TokenBatch, config: TrialConfig, *, seed: int) -> tuple[Tensor, ...]:
    """Return the rows of each mini-batch of one epoch, shuffled by row or by group.

    A filter may have left fewer rows than a multiple of the size: the last mini-batch is short.
    """
    size, device = config.optim.mini_batch_size, batch.ids_NT.device
    if config.optim.minibatch_by == "row":
        order = torch.from_numpy(permutation(len(batch), seed)).to(device)
        return torch.split(order, size)
    groups_G = torch.unique(batch.group_N)
    order = torch.from_numpy(permutation(len(groups_G), seed)).to(device)
    chosen = torch.split(groups_G[order], size // config.rollout.group_size)
    return tuple(_rows_of(batch, groups) for groups in chosen)


def _rows_of(batch: TokenBatch, groups: Tensor) -> Tensor:
    """Return the rows of some groups, group by group."""
    return (batch.group_N == groups[:, None]).nonzero()[:, 1]


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """The micro-batches in which a batch is scored before its update."""

    parts: tuple[MicroBatch, ...]  # scored by the policy
    pending: tuple[MicroBatch, ...] = ()  # those whose old logprobs the update itself will give


def plan_scoring(
    batch: TokenBatch,
    plan: tuple[MiniBatchPlan, ...],
    config: TrialConfig,
    limit: Limit,
    share: Share = WHOLE,
) -> ScoringPlan:
    """Return how a batch is scored.

    In the first optimiser step the policy is the one that sampled: its old logprobs are those that
    the update computes anyway. Where something needs them earlier, the rows are scored in the
    micro-batches of that step, from the same weights, so that the ratio is 1 either way.
    """
    first, device = plan[0], batch.ids_NT.device
    rows = torch.arange(len(batch), device=device)
    others = own_micro_batches(batch, rows[~torch.isin(rows, first.rows)], limit, share)
    if needs_old_logprobs(config):
        return ScoringPlan(first.parts + others)
    return ScoringPlan(others, pending=first.parts)


def needs_old_logprobs(config: TrialConfig) -> bool:
    """Return whether all rows must go through the policy before the update.

    For a critic on its hidden states, for weights of tokens by their surprisal or entropy, for a
    correction by their distance from the engine's logprobs, for gold answers that are read from its
    cache; and because the dropout of adapters makes the update compute something else.
    """
    has_shared_critic = config.advantage.kind in CRITIC_KINDS and config.critic.backbone == "policy"
    own = config.attribution
    return (
        has_shared_critic
        or config.advantage.shaping.gtpo_beta > 0
        or config.rollout_correction.kind != "none"
        or (own.kind == "info_gain" and own.mode != "none")
        or drops_inputs(config)
    )
