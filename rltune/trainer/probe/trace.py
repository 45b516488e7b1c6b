"""Gradients of a condition on a probe batch, by the trainer's own filter, credit and objective."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from rltune.policy.load import CausalLM
from rltune.policy.value_head import ValueModel
from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.signals.info_gain import InfoGains, InformationGain
from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.micro_batches import cut_batch, limit_of
from rltune.trainer.credit.judging import Judged
from rltune.trainer.credit.shaping import needs_entropy
from rltune.trainer.credit.stages import assign_credit
from rltune.trainer.filtering import apply_filter, filter_groups
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.probe.batch import MOST_TURNS, Scene
from rltune.trainer.probe.pairs import EXACT, Trace
from rltune.trainer.probe.policy import (
    Beliefs,
    PlannedSteps,
    TableCritic,
    TableModel,
    Words,
    as_policy,
    make_beliefs,
)
from rltune.trainer.probe.ratios import (
    FLOAT_NOISE,
    Bounds,
    float_noise,
    log_ratios,
    log_weights,
)
from rltune.trainer.train_state import TrainState, score_batch
from rltune.types import Episode

_UNCLIPPED = 1e30  # a factor must be seen; where a clip would hide it is told in the finding


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """One probe of all conditions."""

    scene: int  # number of the probe batch
    feedback: int  # number of the simulation that `step` comes from
    step: int  # training step
    has_noise: bool = False  # whether the ratio is off by rounding at the first optimiser step


@dataclass(frozen=True, slots=True)
class ProbedCondition:
    """A condition, ready to be probed."""

    config: TrialConfig  # as it is run by the probe
    scenes: list[Scene]  # its probe batches
    sepa: list[list[float]]  # strength of SEPA's pooling by feedback and step

    def sepa_at(self, point: ProbePoint) -> float:
        """Return the strength of SEPA's pooling at a point; a shorter trial keeps its last."""
        track = self.sepa[point.feedback]
        return track[min(point.step, len(track)) - 1]


def as_probed(config: TrialConfig) -> TrialConfig:
    """Return a config whose results the probe can have: no clip of the norm, verdicts as given.

    Micro-batches only divide the work: all of a mini-batch is one.
    """
    whole = {"tokens_per_micro_batch": sys.maxsize, "micro_batch_size": None}
    optim = config.optim.model_copy(update={"grad_clip": _UNCLIPPED, **whole})
    attribution = config.attribution
    if attribution.kind == "adca":
        attribution = attribution.model_copy(update={"judge": "llm"})
    return config.model_copy(update={"optim": optim, "attribution": attribution})


def trace(subject: ProbedCondition, point: ProbePoint, words: Words, bounds: Bounds) -> Trace:
    """Return what a condition learns from one probe batch."""
    config, scene = subject.config, subject.scenes[point.scene]
    whole = to_batch(scene.episodes, pad_id=0)
    seed = 100 * point.scene + point.step
    beliefs = make_beliefs(
        whole,
        n_words=len(words.words),
        temperature=config.rollout.temperature,
        seed=seed,
    )
    whole = replace(whole, rollout_logprobs_NT=_sampled(config, point, whole, beliefs, bounds))
    tolerance = 20 * FLOAT_NOISE if point.has_noise else EXACT
    chosen = filter_groups(whole, groups=config.rollout.groups, config=config.rollout_filter)
    if chosen.is_empty and config.rollout_filter.on_drop == "drop":
        return Trace((), (), scene.has_faults, tolerance)
    batch = apply_filter(whole, chosen, on_drop=config.rollout_filter.on_drop)
    train_state = _train_state(config, whole, beliefs, words, bounds, seed)
    _update(train_state, batch, whole, subject, point, beliefs, bounds, chosen.scale)
    return Trace(
        tuple(_gradients(train_state.actor_optimizer)),
        tuple(_gradients(train_state.critic_optimizer)),
        scene.has_faults,
        tolerance,
    )


def _sampled(
    config: TrialConfig, point: ProbePoint, batch: TokenBatch, beliefs: Beliefs, bounds: Bounds
) -> torch.Tensor:
    """Return what the engine reported: the trainer's logprobs, or others where they can differ."""
    logp_NT = beliefs.logp_NT.numpy()
    rollout = config.rollout
    if not _is_exact(config) or rollout.engine != "torch" or rollout.ahead:
        logp_NT = logp_NT - log_weights(batch, bounds, seed=point.scene)
    elif point.has_noise:
        logp_NT = logp_NT - float_noise(batch, seed=50 + point.scene)
    return torch.from_numpy(logp_NT).where(batch.action_mask_NT, 0).float()


def _is_exact(config: TrialConfig) -> bool:
    """Return whether two passes over the same tokens differ by rounding to float32 alone."""
    lora = config.policy.lora
    return config.policy.dtype == "float32" and not (lora.rank and lora.dropout)


def _train_state(
    config: TrialConfig,
    whole: TokenBatch,
    beliefs: Beliefs,
    words: Words,
    bounds: Bounds,
    seed: int,
) -> TrainState:
    optim = config.optim
    n_steps = -(-len(whole) // optim.mini_batch_size) * optim.epochs
    plans = [
        beliefs.logits(log_ratios(whole, bounds, seed=1000 * seed + nth)) for nth in range(n_steps)
    ]
    model = TableModel(beliefs.logits())
    reference = TableModel(beliefs.logits(0.3 * log_ratios(whole, bounds, seed=999 + seed) + 0.1))
    reference.requires_grad_(False)
    critic = critic_optimizer = None
    if config.advantage.kind in CRITIC_KINDS:
        rng = np.random.Generator(np.random.PCG64(seed))
        values = [
            torch.from_numpy(rng.normal(0, 1, whole.ids_NT.shape)) for _ in range(n_steps + 1)
        ]
        critic = TableCritic(values[0])
        moved = [values[0] + 0.3 * value for value in values[1:]]
        critic_optimizer = PlannedSteps(critic.values_NT, moved)
    return TrainState(
        policy=as_policy(model, words),
        reference=cast(CausalLM, reference) if config.loss.use_kl_loss else None,
        critic=cast(ValueModel | None, critic),
        actor_optimizer=PlannedSteps(model.base_model.logits_NTV, plans),
        critic_optimizer=critic_optimizer,
    )


def _update(
    train_state: TrainState,
    batch: TokenBatch,
    whole: TokenBatch,
    subject: ProbedCondition,
    point: ProbePoint,
    beliefs: Beliefs,
    bounds: Bounds,
    scale: float,
) -> None:
    """Score, credit and update, as `rltune.trainer.update_step` does."""
    config, scene = subject.config, subject.scenes[point.scene]
    limit = limit_of(train_state.policy, config)
    signals = score_batch(
        train_state,
        batch,
        temperature=config.rollout.temperature,
        parts=cut_batch(batch, limit),
        with_entropy=needs_entropy(config.advantage.shaping),
    )
    flags = dict(zip((e.task_id for e in scene.episodes), scene.flags, strict=True))

    def ask(episodes: Sequence[Episode]) -> Judged:
        return Judged([flags[episode.task_id] for episode in episodes], {})

    result = assign_credit(
        train_state.policy,
        batch,
        signals,
        scene.episodes,
        config,
        step=point.step,
        sepa_lambda=subject.sepa_at(point),
        scale=scale,
        ask=ask,
        gains=_gains(config, batch, scene),
    )
    start = None
    if not _is_exact(config):
        start = log_ratios(whole, bounds, seed=point.scene)
    elif point.has_noise:
        start = torch.from_numpy(float_noise(whole, seed=point.scene))
    if start is not None:
        with torch.no_grad():
            train_state.policy.model.base_model.logits_NTV.copy_(beliefs.logits(start))
    data = MiniBatch(batch, signals, result.credit)
    update(train_state, data, config, step=point.step, kl_coef=config.loss.kl_loss_coef)


def _gains(config: TrialConfig, batch: TokenBatch, scene: Scene) -> InfoGains | None:
    if config.attribution.kind != "info_gain" or config.attribution.mode == "none":
        return None
    n_turns = batch.n_turns
    gold = torch.from_numpy(scene.gold_logp_NC)[batch.episode_N, : min(n_turns, MOST_TURNS)]
    gold[~batch.is_trained_N] = torch.nan
    n_contexts = torch.tensor([len(scene.episodes[row].turns) for row in batch.episode_N.tolist()])
    return InformationGain(config.attribution.ig_type)(gold, n_contexts.clamp(max=n_turns))


def _gradients(optimizer: object) -> list[torch.Tensor]:
    return optimizer.gradients if isinstance(optimizer, PlannedSteps) else []
