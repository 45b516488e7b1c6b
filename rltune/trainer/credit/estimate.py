"""From rewards and signals to an advantage for each sampled token.

Data flows one way: estimator -> credit of turns -> weights of tokens -> scale of the filter. This
file holds the first stage; the others are `attribution` and `shaping`, and `stages` runs them all.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rltune.advantages import ESTIMATORS
from rltune.advantages.gae import gae
from rltune.advantages.gae_bilevel import gae_bilevel
from rltune.advantages.grpo import broadcast
from rltune.advantages.reinforce import reinforce_pp
from rltune.errors import TrialError
from rltune.maths.masked import masked_whiten
from rltune.rollout.tokens import TokenBatch
from rltune.spec.estimators import WHITENED_KINDS
from rltune.spec.schema.advantage import (
    Advantage,
    CustomAdvantageConfig,
    GaeBilevelConfig,
    GaeConfig,
    ReinforcePpConfig,
)
from rltune.trainer.train_state import Signals
from rltune_envs.errors import CustomCodeError
from rltune_envs.guard import call, limit_of
from rltune_envs.imports import load_object


@dataclass(frozen=True, slots=True)
class Credit:
    """Advantages and what goes with them, (N, T), 0 outside the action mask."""

    advantages_NT: Tensor  # one advantage per sampled token
    returns_NT: Tensor | None = None  # the critic's targets; None without a critic
    # factor on the clip bounds of a token's turn; None where it is 1 everywhere
    clip_scale_NT: Tensor | None = None
    # factor on a token's loss that corrects for the engine; None likewise
    weights_NT: Tensor | None = None


def estimate(batch: TokenBatch, signals: Signals, config: Advantage) -> Credit:
    """Return the advantages of the estimator alone, before credit per turn and shaping.

    A row with a fault has none, and the others have those that they would have without it.
    """
    mask_NT = batch.action_mask_NT
    if config.kind in TOKEN_ESTIMATORS:
        numbers = config.model_dump(exclude={"kind", "shaping"})
        credit = TOKEN_ESTIMATORS[config.kind](batch, signals, **numbers)
    else:
        credit = Credit(broadcast(episode_advantages(batch, config), mask_NT))
    if config.kind not in WHITENED_KINDS:
        return credit
    return replace(credit, advantages_NT=masked_whiten(credit.advantages_NT, mask_NT))


def episode_advantages(batch: TokenBatch, config: Advantage) -> Tensor:
    """Return one advantage per episode, from the valid ones of its group; 0 for the others.

    Raises:
        ValueError: The estimator is none of an episode, or refuses the outcomes.
        TrialError: A custom estimator raises something, does not return in time, or returns
            something else than one finite number per episode.

    """
    outcome_N, valid_N = outcome_of(batch, config), batch.is_valid_N
    advantages_N = torch.zeros_like(outcome_N)
    if not valid_N.any():  # no estimator need know what to do with nothing
        return advantages_N
    outcome_M = outcome_N[valid_N]
    group_M = batch.group_N[valid_N]
    if isinstance(config, CustomAdvantageConfig):
        advantages_N[valid_N] = _custom_advantages(config, outcome_M, group_M)
    else:
        keywords = config.model_dump(exclude={"kind", "outcome", "shaping"})
        advantages_N[valid_N] = ESTIMATORS[config.kind](outcome_M, group_M, **keywords).detach()
    return advantages_N


def _custom_advantages(config: CustomAdvantageConfig, outcome_N: Tensor, group_N: Tensor) -> Tensor:
    """Return the advantages, (N,) cast to float32, that a user's estimator gives to episodes."""
    estimator = load_object(config.estimator)
    try:
        returned = call(
            f"advantage.estimator {config.estimator!r}",
            lambda: estimator(outcome_N, group_N, **deepcopy(config.arguments)),
            limit_s=limit_of(estimator),
            module=config.estimator.partition(":")[0],
        )
    except CustomCodeError as error:
        raise TrialError(f"{error}") from error
    complaint = _complaint(returned, len(outcome_N))
    if complaint or not isinstance(returned, Tensor):
        raise TrialError(
            f"advantage.estimator {config.estimator!r} returned {complaint}. It must return a "
            f"torch tensor of shape ({len(outcome_N)},): one finite number per episode that it was "
            "given."
        )
    return returned.detach().to(outcome_N.device, torch.float32)


def _complaint(returned: object, n: int) -> str:
    """Return what is wrong with the result of an estimator; empty when nothing is."""
    if not isinstance(returned, Tensor):
        return f"a {type(returned).__name__}, {returned!r:.80}"
    if returned.is_complex() or returned.dtype is torch.bool:
        return f"numbers of type {returned.dtype}"
    if returned.shape != (n,):
        return f"a tensor of shape {tuple(returned.shape)}"
    bad = (~returned.detach().to(torch.float32).isfinite()).nonzero()[:, 0].tolist()
    if bad:
        return f"{returned[bad[0]].item()} for episode {bad[0]} ({len(bad)} of {n} are not finite)"
    return ""


def outcome_of(batch: TokenBatch, config: Advantage) -> Tensor:
    """Return what the episodes of a group are compared by, (N,) in float32.

    Raises:
        ValueError: The estimator compares no episodes.

    """
    if isinstance(config, GaeConfig | GaeBilevelConfig | ReinforcePpConfig):
        raise ValueError(f"advantage.kind {config.kind} gives no advantage to a whole episode")
    outcome_N = batch.success_N if config.outcome == "success" else batch.rewards_N
    return outcome_N.float()


def _gae(batch: TokenBatch, signals: Signals, **numbers: Any) -> Credit:
    rewards_NT = _trained(batch, batch.rewards_NT)
    result = gae(rewards_NT, _values(signals), batch.action_mask_NT, **numbers)
    return Credit(result.advantages_NT, result.returns_NT)


def _gae_bilevel(batch: TokenBatch, signals: Signals, **numbers: Any) -> Credit:
    rewards_NT = _trained(batch, batch.turn_rewards_NT)
    values_NT, mask_NT = _values(signals), batch.action_mask_NT
    result = gae_bilevel(rewards_NT, values_NT, mask_NT, batch.turn_ids_NT, **numbers)
    return Credit(result.advantages_NT, result.returns_NT)


def _reinforce_pp(batch: TokenBatch, signals: Signals, *, gamma: float) -> Credit:
    rewards_NT = _trained(batch, batch.rewards_NT)
    return Credit(reinforce_pp(rewards_NT, batch.action_mask_NT, gamma=gamma))


TOKEN_ESTIMATORS: Mapping[str, Callable[..., Credit]] = {
    "gae": _gae,
    "gae_bilevel": _gae_bilevel,
    "reinforce_pp": _reinforce_pp,
}
"""`advantage.kind` -> estimator of single tokens; those of episodes are `ESTIMATORS`."""


def _values(signals: Signals) -> Tensor:
    if signals.values_NT is None:
        raise ValueError("this advantage.kind needs a critic's values")
    return signals.values_NT


def _trained(batch: TokenBatch, rewards_NT: Tensor) -> Tensor:
    """Return the rewards of the rows that are trained on; a masked-out row has none."""
    return rewards_NT.where(batch.is_trained_N[:, None], 0)
