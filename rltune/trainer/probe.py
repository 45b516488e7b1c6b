"""S6's probe: the real credit, filter and objective of each condition on the same fixed batches.

It runs in a process of its own (`python -m rltune.trainer.probe REQUEST ANSWER`), because a check
imports no torch: REQUEST is a JSON file with `base`, `conditions` (label -> resolved config),
`pairs` and `selections` (the pairs that differ in a filter); ANSWER is written.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rltune.maths.turns import turn_count
from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.signals.info_gain import Gains, InformationGain
from rltune.signals.planning import DEFAULT_GRAMS
from rltune.spec.credit_checks import CRITIC_KINDS
from rltune.spec.functional import Likeness
from rltune.spec.schema import TrialConfig
from rltune.trainer.assign import assign_credit
from rltune.trainer.filtering import apply_filter, filter_groups
from rltune.trainer.judging import Judged
from rltune.trainer.learner import Learner, score_batch
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.probe_batch import MOST_TURNS, Scene, make_scenes
from rltune.trainer.probe_pairs import EXACT, Match, Trace, likeness, match
from rltune.trainer.probe_policy import (
    Beliefs,
    PlannedSteps,
    TableCritic,
    TableModel,
    Words,
    as_critic,
    as_model,
    as_policy,
    make_beliefs,
)
from rltune.trainer.probe_ratios import (
    FLOAT_NOISE,
    Bounds,
    bounds_of,
    float_noise,
    log_ratios,
    log_weights,
)
from rltune.trainer.probe_times import simulate, telling_steps
from rltune.trainer.shaping import needs_entropy
from rltune.trainer.tasks import add_to_path
from rltune.types import Episode

Pairs = Sequence[tuple[str, str]]
_UNCLIPPED = 1e30  # a factor must be seen; where a clip would hide it is told in the finding
_MOST_PHRASES = 24


@dataclass(frozen=True, slots=True)
class Look:
    """One probe of all conditions.

    Attributes:
        scene: Number of the probe batch.
        feedback: Of the simulation that `step` was found in.
        step: Training step.
        has_noise: Whether the ratio is off by rounding at the first optimiser step.

    """

    scene: int
    feedback: int
    step: int
    has_noise: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A condition, ready to be probed.

    Attributes:
        config: As it is run by the probe.
        scenes: Its probe batches.
        sepa: Strength of SEPA's pooling by feedback and step.

    """

    config: TrialConfig
    scenes: list[Scene]
    sepa: list[list[float]]


def probe(
    configs: Mapping[str, TrialConfig], pairs: Pairs, selections: Pairs = ()
) -> tuple[list[Likeness], dict[str, str]]:
    """Return how the pairs compare, and why some conditions could not be probed.

    Args:
        configs: Label -> config of every condition in some pair.
        pairs: Which to compare.
        selections: Those of them that differ in what the filter selects.

    """
    words = Words(_phrases(configs.values()))
    bounds = bounds_of(configs.values())
    tracks = {label: simulate(config) for label, config in configs.items()}
    subjects = {
        label: Subject(
            _as_probed(config),
            make_scenes(config, n_words=len(words.words)),
            [[settings.sepa for settings in track] for track in tracks[label]],
        )
        for label, config in configs.items()
    }
    looks = _looks(telling_steps(tracks, pairs), len(next(iter(subjects.values())).scenes))
    matches: dict[tuple[str, str], list[Match]] = {pair: [] for pair in pairs}
    failed: dict[str, str] = {}
    for look in looks:
        traces: dict[str, Trace] = {}
        for label, subject in subjects.items():
            if label not in failed:
                try:
                    traces[label] = trace(subject, look, words, bounds)
                except Exception as error:  # whatever an estimator of a user's own raises
                    failed[label] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        for a, b in pairs:
            if a in traces and b in traces:
                matches[a, b].append(match(traces[a], traces[b]))
    found = [
        replace(likeness(a, b, matches[a, b]), is_selection=(a, b) in selections)
        for a, b in pairs
        if a not in failed and b not in failed
    ]
    return found, failed


def _phrases(configs: Any) -> list[str]:
    """Return the phrases that mark planning in some condition, those first that not all know."""
    lists = [
        set(config.advantage.shaping.grams or DEFAULT_GRAMS)
        for config in configs
        if config.advantage.shaping.hicra_alpha or config.advantage.shaping.sepa.schedule != "none"
    ]
    known = set().union(*lists) if lists else set()
    return sorted(known, key=lambda phrase: (all(phrase in own for own in lists), phrase))[
        :_MOST_PHRASES
    ]


def _as_probed(config: TrialConfig) -> TrialConfig:
    """Return a config whose results the probe can have: no clip of the norm, verdicts as given.

    Micro-batches only divide the work: all of a mini-batch is one.
    """
    optim = config.optim.model_copy(
        update={"grad_clip": _UNCLIPPED, "micro_batch_size": config.optim.mini_batch_size}
    )
    attribution = config.attribution
    if attribution.kind == "adca":
        attribution = attribution.model_copy(update={"judge": "llm"})
    return config.model_copy(update={"optim": optim, "attribution": attribution})


def _looks(steps: Sequence[tuple[int, int]], n_scenes: int) -> list[Look]:
    """Return what to look at: every batch at the first of the steps, two at each other one."""
    (feedback, step), *others = steps
    looks = [Look(scene, feedback, step) for scene in range(n_scenes)]
    looks += [Look(scene, feedback, step, has_noise=True) for scene in (0, 2)]
    looks += [Look(scene, at, when) for at, when in others for scene in (0, 1)]
    return looks


def trace(subject: Subject, look: Look, words: Words, bounds: Bounds) -> Trace:
    """Return what a condition learns from one probe batch."""
    config, scene = subject.config, subject.scenes[look.scene]
    whole = to_batch(scene.episodes, pad_id=0)
    seed = 100 * look.scene + look.step
    beliefs = make_beliefs(
        whole,
        whole.action_mask_NT,
        n_words=len(words.words),
        temperature=config.rollout.temperature,
        seed=seed,
    )
    whole = replace(whole, rollout_logprobs_NT=_sampled(config, whole, beliefs, bounds, seed))
    tolerance = 20 * FLOAT_NOISE if look.has_noise else EXACT
    chosen = filter_groups(whole, groups=config.rollout.groups, config=config.rollout_filter)
    if chosen.is_empty and config.rollout_filter.on_drop == "drop":
        return Trace((), (), scene.has_faults, tolerance)
    batch = apply_filter(whole, chosen, on_drop=config.rollout_filter.on_drop)
    learner = _learner(config, whole, beliefs, words, bounds, seed)
    _learn(learner, batch, whole, subject, look, beliefs, bounds, chosen.scale)
    return Trace(
        tuple(_gradients(learner.actor_optimizer)),
        tuple(_gradients(learner.critic_optimizer)),
        scene.has_faults,
        tolerance,
    )


def _sampled(
    config: TrialConfig, batch: TokenBatch, beliefs: Beliefs, bounds: Bounds, seed: int
) -> np.ndarray:
    """Return what the engine reported: the trainer's logprobs, or others where they can differ."""
    logp_NT = beliefs.logp_NT.numpy()
    if not _is_exact(config) or config.rollout.engine != "torch":
        logp_NT = logp_NT - log_weights(batch, bounds, seed)
    return np.where(batch.action_mask_NT, logp_NT, 0).astype(np.float32)


def _is_exact(config: TrialConfig) -> bool:
    """Return whether two passes over the same tokens differ by rounding to float32 alone."""
    lora = config.policy.lora
    return config.policy.dtype == "float32" and not (lora.rank and lora.dropout)


def _learner(
    config: TrialConfig,
    whole: TokenBatch,
    beliefs: Beliefs,
    words: Words,
    bounds: Bounds,
    seed: int,
) -> Learner:
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
    return Learner(
        policy=as_policy(model, words),
        reference=as_model(reference) if config.loss.use_kl_loss else None,
        critic=as_critic(critic) if critic is not None else None,
        actor_optimizer=PlannedSteps(model.base_model.logits_NTV, plans),
        critic_optimizer=critic_optimizer,
    )


def _learn(
    learner: Learner,
    batch: TokenBatch,
    whole: TokenBatch,
    subject: Subject,
    look: Look,
    beliefs: Beliefs,
    bounds: Bounds,
    scale: float,
) -> None:
    """Score, credit and update, as `rltune.trainer.learning.learn` does."""
    config, scene = subject.config, subject.scenes[look.scene]
    signals = score_batch(
        learner,
        batch,
        temperature=config.rollout.temperature,
        micro_batch_size=config.optim.micro_batch_size,
        with_entropy=needs_entropy(config.advantage.shaping),
    )
    flags = dict(zip((e.task_id for e in scene.episodes), scene.flags, strict=True))

    def ask(episodes: Sequence[Episode]) -> Judged:
        return Judged([flags[episode.task_id] for episode in episodes], {})

    assigned = assign_credit(
        learner.policy,
        batch,
        signals,
        scene.episodes,
        config,
        step=look.step,
        sepa_lambda=subject.sepa[look.feedback][look.step - 1],
        scale=scale,
        ask=ask,
        gains=_gains(config, batch, scene),
    )
    start = None
    if not _is_exact(config):
        start = log_ratios(whole, bounds, seed=look.scene)
    elif look.has_noise:
        start = torch.from_numpy(float_noise(whole, seed=look.scene))
    if start is not None:
        with torch.no_grad():
            learner.policy.model.base_model.logits_NTV.copy_(beliefs.logits(start))
    data = MiniBatch(batch, signals, assigned.credit)
    update(learner, data, config, step=look.step, kl_coef=config.loss.kl_loss_coef)


def _gains(config: TrialConfig, batch: TokenBatch, scene: Scene) -> Gains | None:
    if config.attribution.kind != "info_gain" or config.attribution.mode == "none":
        return None
    n_turns = max(1, turn_count(torch.from_numpy(batch.turn_ids_NT)))
    gold = torch.from_numpy(scene.gold_logp_NC[batch.episode_N, : min(n_turns, MOST_TURNS)])
    gold[~torch.from_numpy(batch.action_mask_NT.any(axis=1))] = torch.nan
    n_contexts = torch.tensor([len(scene.episodes[row].turns) for row in batch.episode_N])
    return InformationGain(config.attribution.ig_type)(gold, n_contexts.clamp(max=n_turns))


def _gradients(optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    return optimizer.gradients if isinstance(optimizer, PlannedSteps) else []


def main(request_file: str, answer_file: str) -> None:
    """Probe the conditions of a request and write the answer."""
    torch.set_num_threads(1)
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    add_to_path(Path(request["base"]))
    configs = {
        label: TrialConfig.model_validate(plain) for label, plain in request["conditions"].items()
    }
    pairs = [(a, b) for a, b in request["pairs"]]
    found, failed = probe(configs, pairs, [(a, b) for a, b in request["selections"]])
    answer = {"pairs": [asdict(item) for item in found], "failed": failed}
    Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
