"""Checks over several keys of credit assignment: estimator, turns, tokens, loss."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltune.spec.errors import Violation
from rltune.spec.estimators import EPISODE_KINDS, GROUP_KINDS
from rltune.spec.warmstart_data import TAUGHT_ENVS, can_write, tiny_words

if TYPE_CHECKING:
    from rltune.spec.schema.advantage import Advantage, ShapingConfig
    from rltune.spec.schema.attribution import Attribution
    from rltune.spec.schema.env import Env
    from rltune.spec.schema.loss import Loss
    from rltune.spec.schema.reward import RewardConfig
    from rltune.spec.schema.trial import PolicyConfig


def attribution_violations(advantage: "Advantage", attribution: "Attribution") -> list[Violation]:
    """Return whether credit per turn has no outcome of an episode to stand beside."""
    if attribution.kind == "none":
        return []
    if attribution.kind == "info_gain":
        is_grpo = advantage.kind == "grpo" and advantage.normalize_std and advantage.ddof == 0
        if is_grpo:
            return []
        what = "'info_gain' takes the place of the estimator: it normalises the outcome by the std "
        what += f"of its group's population, which advantage.kind {advantage.kind} does not do."
        action = "Set advantage to {kind: grpo, ddof: 0}, which does."
        if advantage.kind == "grpo":
            what = "'info_gain' normalises the outcome by the std of the population itself."
            action = "Set advantage to {kind: grpo, ddof: 0}, which says the same."
        return [Violation("attribution.kind", what, action)]
    if advantage.kind in EPISODE_KINDS:
        return []
    what = f"{attribution.kind!r} cannot be added to advantage.kind {advantage.kind}"
    if advantage.kind in GROUP_KINDS:
        what += ", which is whitened over tokens after turns would have been credited"
    action = f"Choose an estimator per episode: {', '.join(EPISODE_KINDS)}."
    return [Violation("attribution.kind", f"{what}.", action)]


def maxrl_violations(
    advantage: "Advantage", env: "Env", reward: "RewardConfig | None"
) -> list[Violation]:
    """Return what can make a reward negative where rewards are divided by their mean."""
    if advantage.kind != "maxrl" or advantage.outcome != "reward":
        return []
    negative = _negative_rewards(env, reward)
    if not negative:
        return []
    what = f"'reward' must be 0 or more for maxrl, and {' and '.join(negative)} can make it less."
    action = "Set it to success, or remove what is negative."
    return [Violation("advantage.outcome", what, action)]


def _negative_rewards(env: "Env", reward: "RewardConfig | None") -> list[str]:
    """Return what of a config can make an episode's reward negative, as far as the config says.

    A Sokoban episode pays 0.1 for each action. A custom class may do so unseen.
    """
    if reward is not None:
        below = [term for term in reward.terms if term.weight < 0]
        found = [f"{term.name} of weight {term.weight:g} in reward.terms" for term in below]
        if reward.format_penalty < 0:
            found.append(f"reward.format_penalty {reward.format_penalty:g}")
        is_own = reward.turn_rewards == "env" or "env_reward" in [t.score for t in reward.terms]
        return found + (_negative_rewards(env, None) if is_own else [])
    found = ["each action of sokoban (-0.1)"] if env.kind == "sokoban" else []
    penalty = getattr(env, "format_penalty", 0.0)
    return found + ([f"env.format_penalty {penalty:g}"] if penalty < 0 else [])


def turn_clip_violations(loss: "Loss", attribution: "Attribution") -> list[Violation]:
    """Return whether clip bounds are to follow a gain that is not there."""
    if loss.kind != "turn" or not loss.turn_clip_beta:
        return []
    if attribution.kind == "info_gain" and attribution.mode != "none":
        return []
    what = f"{loss.turn_clip_beta!r} needs the information gain of turns."
    action = "Set attribution.kind: info_gain with a mode, or it to 0.0."
    return [Violation("loss.turn_clip_beta", what, action)]


def shaping_violations(shaping: "ShapingConfig") -> list[Violation]:
    """Return whether SEPA pools a signal that nothing weighs."""
    if shaping.sepa.schedule == "none" or shaping.gtpo_beta > 0:
        return []
    what = f"{shaping.sepa.schedule!r} changes the signal of GTPO, which is off."
    return [
        Violation("sepa.schedule", what, "Set advantage.shaping.gtpo_beta above 0, or it to none.")
    ]


def planning_violations(
    advantage: "Advantage", policy: "PolicyConfig", env: "Env"
) -> list[Violation]:
    """Return whether planning tokens are looked for in a language that has none of the phrases."""
    shaping = advantage.shaping
    is_hicra = shaping.hicra_alpha > 0
    is_used = is_hicra or shaping.sepa.schedule != "none"
    if policy.model != "tiny" or env.kind not in TAUGHT_ENVS or not is_used:
        return []
    words = tiny_words(env.kind)
    action = f"Give phrases that it writes, such as {_list(words[:2])}, or another policy.model."
    if shaping.grams is None:
        key = "hicra_alpha" if is_hicra else "sepa.schedule"
        value = shaping.hicra_alpha if is_hicra else shaping.sepa.schedule
        what = (
            f"{value!r} looks for planning phrases, and advantage.shaping.grams null are phrases "
        )
        what += "of natural language, which policy tiny never writes."
        return [Violation(f"advantage.shaping.{key}", what, f"Under grams: {action}")]
    never = [gram for gram in shaping.grams if not can_write(gram, words)]
    if not never:
        return []
    what = f"{_list(never)} can never be written by policy tiny of {env.kind}."
    return [Violation("advantage.shaping.grams", what, action)]


def _list(words: Sequence[str]) -> str:
    return json.dumps(list(words), ensure_ascii=False)
