"""The known intervention knobs, and the keys that make tasks and budget what they are."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.filter_effect import effect_of
from rltune.spec.identity import MISSING, canonical_json, flatten, is_as_before
from rltune.spec.schema.trial import TrialConfig

KNOBS = {
    "loss.entropy_coeff": "an entropy bonus flattens the policy whatever the reward says",
    "loss.kl_loss_coef": "a KL cost ties the policy to its start",
    "loss.kl_type": "decides whether the KL cost has a gradient, and which",
    "loss.kl_target": "decides whether the KL cost's weight moves by itself",
    "loss.turn_clip_beta": "widens the trust region of turns that gained information",
    "attribution.kind": "decides which turns of an episode get the credit",
    "advantage.shaping.gtpo_beta": "gives uncertain tokens more of the credit",
    "advantage.shaping.hicra_alpha": "gives planning tokens more of the credit",
    "rollout_correction.kind": "weighs tokens by how far engine and trainer are apart",
    "rollout_filter.strategy": "decides which prompts teach",
    "rollout_filter.value": "decides how many prompts teach",
    "rollout_filter.mode": "decides what the share is a share of, and its scale dependence",
    "rollout_filter.metric": "decides by which score prompts are chosen",
    "rollout_filter.type": "decides which end of the score teaches",
    "rollout_filter.include_zero": "decides whether prompts without reward spread take part",
    "rollout_filter.on_drop": "decides whether dropped prompts cost optimiser steps",
    "rollout_filter.loss_scaling": "scales the advantages with the kept share",
    "env.success_rate": "decides how much of an outcome is luck",
}
"""What published sweeps vary -> why it must be stated when it is not the axis (S3).

Estimator, critic, clipping and optimiser are the method, not interventions: they come from base
and profile, are part of S1 and S9, and need no line in every sweep file. A knob without effect in
every condition (`inactive_keys`) need not be held either, nor one that the env does not have.
"""

SHOWN_ONLY = (
    "env.prompt",
    "env.observation",
    "env.symbols",
    "env.system",
    "env.feedback",
    "env.format_penalty",
    "reward.format_penalty",
    "reward.turn_rewards",
)
"""Keys that change how a task is shown or paid, but not the task or its floor and ceiling."""

TASK_SECTIONS = ("env", "reward", "gate.tasks", "gate.test_tasks")
"""Sections and keys of which all that is not `SHOWN_ONLY` decides the frozen tasks, or the floor
and the ceiling that are proved for them."""

PLAYED_ONLY = (
    "env.success_rate",
    "env.max_turns",
    "env.max_actions_per_turn",
    "env.corpus",
    "env.retriever",
    "env.k",
    "env.max_searches",
    "env.max_information_words",
    "env.verifier",
    "reward",
)
"""Task keys that change the floor and the ceiling, but not which tasks are drawn.

`env.max_actions` is none: by default no grid game needs more.
"""


SAMPLING = ("env", "policy", "rollout", "gate.tasks", "gate.test_tasks", "resources.threads")
"""Sections and keys that can change what is sampled before the first update.

All others (loss, advantage, optimiser, critic, filter, reward ...) work on what was sampled.
"""

PAID_ONLY = ("env.format_penalty",)
"""Keys in those sections that change what an episode earns, but nothing that the policy reads,
unless it is told what a turn earned (`shows_reward`)."""

LATER_ONLY = ("rollout.ahead",)
"""Keys in those sections that change what is sampled after the first update alone."""


def shows_reward(kind: str, prompt: str) -> bool:
    """Return whether an env tells the policy what its last turn earned."""
    return kind in ("sokoban", "frozen_lake") and prompt == "natural"


def is_task_key(key: str) -> bool:
    """Return whether a dotted leaf key decides the frozen tasks, their floor or their ceiling."""
    return _is_in(key, TASK_SECTIONS) and not _is_in(key, SHOWN_ONLY)


def is_drawing_key(key: str) -> bool:
    """Return whether a dotted leaf key decides which tasks are drawn."""
    return is_task_key(key) and not _is_in(key, PLAYED_ONLY)


@cache  # the same keys of every trial, many times over
def _is_in(key: str, sections: tuple[str, ...]) -> bool:
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def task_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the keys that change the frozen tasks, floor or ceiling."""
    return {key: value for key, value in flatten(config).items() if is_task_key(key)}


def sampling_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the keys that can change what is sampled before the first update."""
    flat = flatten(config)
    paid = () if shows_reward(flat["env.kind"], flat["env.prompt"]) else PAID_ONLY
    unread = (*paid, *LATER_ONLY)
    return {
        key: value
        for key, value in flat.items()
        if _is_in(key, SAMPLING) and not (_is_in(key, unread) or is_as_before(key, value))
    }


def moving_task_keys(configs: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the keys with more than one value whose values change the frozen tasks."""
    settings = [task_settings(config) for config in configs]
    keys = dict.fromkeys(key for own in settings for key in own)
    return tuple(
        key for key in keys if len({canonical_json(own.get(key, MISSING)) for own in settings}) > 1
    )


def budget(config: TrialConfig) -> dict[str, Any]:
    """Return what must be equal for a fair comparison (S5); products where only they count."""
    rollout, gate = config.rollout, config.gate
    return {
        "budget.steps": config.budget.steps,
        "rollouts per step": rollouts_per_step(config),
        "rollout.max_response_tokens": rollout.max_response_tokens,
        "rollout.max_context": rollout.max_context,
        "gate.every": gate.every,
        "gate.tasks": gate.tasks,
        "gate.temperature": gate.temperature,
    }


def rollouts_per_step(config: TrialConfig) -> int:
    """Return the episodes of a training step."""
    return config.rollout.groups * config.rollout.group_size


def warmup_steps(config: TrialConfig) -> int:
    """Return the training steps of a trial in which its critic learns and its policy does not."""
    if config.advantage.kind not in CRITIC_KINDS:
        return 0
    return min(config.critic.warmup_steps, config.budget.steps)


def updates_per_step(config: TrialConfig) -> int:
    """Return optimiser steps per training step when no group is dropped."""
    return rollouts_per_step(config) // config.optim.mini_batch_size * config.optim.epochs


def filter_is_on(config: TrialConfig) -> bool:
    """Return whether the filter of a config can drop a group."""
    return effect_of(config.rollout_filter, config.rollout).can_drop


def drops_inputs(config: TrialConfig) -> bool:
    """Return whether the update of a config drops inputs of adapters."""
    return config.policy.lora.rank > 0 and config.policy.lora.dropout > 0


def credit_of_turns(config: TrialConfig) -> str:
    """Return what gives turns credit of their own, `verdicts on turns`; empty for nothing."""
    own = config.attribution
    if own.kind == "adca":
        return "verdicts on turns" if own.has_weight else ""
    is_gain = own.kind == "info_gain" and own.mode != "none" and own.ig_coef > 0
    return "the information gain of turns" if is_gain else ""
