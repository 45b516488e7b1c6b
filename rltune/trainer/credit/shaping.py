"""Weights of single tokens: SEPA's pooling, GTPO and HICRA, in this order, each optional."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rltune.advantages.gtpo import gtpo
from rltune.advantages.hicra import hicra
from rltune.advantages.sepa import exec_variance, sepa_pool
from rltune.policy.load import Policy
from rltune.policy.spans import token_spans
from rltune.rollout.tokens import TokenBatch
from rltune.signals.planning import DEFAULT_GRAMS, planning_spans, planning_tokens
from rltune.spec.schema.advantage import ShapingConfig
from rltune.trainer.train_state import Signals


@dataclass(frozen=True, slots=True)
class Shaped:
    """Advantages with the weights of their tokens.

    Attributes:
        advantages_NT: One per sampled token.
        metrics: `sepa/*`, `planning/*`.
        exec_variance: Variance of the execution tokens' signal; None where SEPA is off or there is
            no such token.

    """

    advantages_NT: Tensor
    metrics: dict[str, float] = field(default_factory=dict)
    exec_variance: float | None = None


def needs_entropy(config: ShapingConfig) -> bool:
    """Return whether a stage looks at the entropy over the vocabulary."""
    return config.gtpo_beta > 0 and config.signal == "entropy"


def shape(
    policy: Policy,
    advantages_NT: Tensor,
    batch: TokenBatch,
    signals: Signals,
    config: ShapingConfig,
    *,
    sepa_lambda: float,
) -> Shaped:
    """Return shaped advantages; the given ones where every stage is off."""
    has_sepa = config.sepa.schedule != "none"
    if not (config.gtpo_beta or config.hicra_alpha):
        return Shaped(advantages_NT)
    mask_NT = batch.action_mask_NT
    metrics: dict[str, float] = {}
    variance = None
    planning_NT = torch.zeros_like(mask_NT)
    if has_sepa or config.hicra_alpha:
        planning_NT = planning_mask(policy, batch, grams=config.grams or DEFAULT_GRAMS)
        metrics["planning/token_ratio"] = (planning_NT.sum() / mask_NT.sum().clamp(min=1)).item()
    if config.gtpo_beta:
        signal_NT = _signal(signals, config.signal)
        if has_sepa:
            variance = exec_variance(signal_NT, planning_NT, mask_NT)
            signal_NT = sepa_pool(
                signal_NT, planning_NT, mask_NT, lam=sepa_lambda, scope=config.scope
            )
        advantages_NT = gtpo(
            advantages_NT, signal_NT, mask_NT, beta=config.gtpo_beta, scope=config.scope
        )
    if config.hicra_alpha:
        advantages_NT = hicra(advantages_NT, planning_NT, mask_NT, alpha=config.hicra_alpha)
    return Shaped(advantages_NT, metrics, variance)


def _signal(signals: Signals, name: str) -> Tensor:
    if name == "surprisal":
        return -signals.old_logp_NT
    if signals.entropy_NT is None:
        raise ValueError("the tokens were scored without their entropy")
    return signals.entropy_NT


def planning_mask(policy: Policy, batch: TokenBatch, *, grams: Sequence[str]) -> Tensor:
    """Return, (N, T) boolean, the sampled tokens that overlap a planning phrase of their turn.

    Phrases are looked for in the decoded text of one response at a time: the text of the
    environment is not the policy's plan.
    """
    ids_NT = batch.ids_NT.cpu()
    turn_ids_NT = batch.turn_ids_NT.where(batch.action_mask_NT, -1).cpu()
    is_planning_NT = torch.zeros(ids_NT.shape, dtype=torch.bool)
    for row, turn_ids_T in enumerate(turn_ids_NT):
        for turn in range(int(turn_ids_T.max()) + 1):
            places = (turn_ids_T == turn).nonzero()[:, 0]
            text, offsets = token_spans(policy.tokenizer, ids_NT[row, places].tolist())
            is_planning = planning_tokens(offsets, planning_spans(text, grams))
            is_planning_NT[row, places] = torch.tensor(is_planning, dtype=torch.bool)
    return is_planning_NT.to(batch.ids_NT.device)
