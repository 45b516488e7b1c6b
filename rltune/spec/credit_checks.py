"""What the keys of credit assignment must satisfy together: estimator, turns, tokens, loss."""

from typing import TYPE_CHECKING

from rltune.spec.violations import Violation

if TYPE_CHECKING:
    from rltune.spec.schema import LossConfig, PolicyConfig
    from rltune.spec.schema_advantage import Advantage, ShapingConfig
    from rltune.spec.schema_attribution import Attribution

CRITIC_KINDS = ("gae", "gae_bilevel")
"""Estimators that need a critic."""

GROUP_KINDS = ("grpo", "grpo_center", "rloo", "maxrl", "reinforce_pp_baseline", "custom")
"""Estimators that compare an episode with the others of its group, and give it one advantage."""


def attribution_violations(advantage: "Advantage", attribution: "Attribution") -> list[Violation]:
    """Return whether credit per turn has no outcome of an episode to stand beside."""
    if attribution.kind == "none":
        return []
    if attribution.kind == "info_gain":
        is_grpo = advantage.kind == "grpo" and advantage.normalize_std and advantage.ddof == 0
        if is_grpo:
            return []
        what = "'info_gain' normalises the outcome by the std of the population itself."
        action = "Set advantage to {kind: grpo, ddof: 0}, which says the same."
        return [Violation("attribution.kind", what, action)]
    if advantage.kind in GROUP_KINDS:
        return []
    what = f"{attribution.kind!r} cannot be added to advantage.kind {advantage.kind}."
    action = f"Choose an estimator per episode: {', '.join(GROUP_KINDS)}."
    return [Violation("attribution.kind", what, action)]


def turn_clip_violations(loss: "LossConfig", attribution: "Attribution") -> list[Violation]:
    """Return whether clip bounds are to follow a gain that is not there, or in another loss."""
    if not loss.turn_clip_beta:
        return []
    what = f"{loss.turn_clip_beta!r} needs the clip bounds and the information gain of turns."
    found = []
    if loss.kind != "turn":
        found.append("loss.kind: turn")
    if attribution.kind != "info_gain" or attribution.mode == "none":
        found.append("attribution.kind: info_gain with a mode")
    if not found:
        return []
    return [Violation("loss.turn_clip_beta", what, f"Set {' and '.join(found)}, or it to 0.0.")]


def shaping_violations(shaping: "ShapingConfig") -> list[Violation]:
    """Return whether SEPA pools a signal that nothing weighs."""
    if shaping.sepa.schedule == "none" or shaping.gtpo_beta > 0:
        return []
    what = f"{shaping.sepa.schedule!r} changes the signal of GTPO, which is off."
    return [
        Violation("sepa.schedule", what, "Set advantage.shaping.gtpo_beta above 0, or it to none.")
    ]


def planning_violations(advantage: "Advantage", policy: "PolicyConfig") -> list[Violation]:
    """Return whether planning tokens are looked for in a language that has none of the phrases."""
    shaping = advantage.shaping
    is_used = shaping.hicra_alpha > 0 or shaping.sepa.schedule != "none"
    if policy.model != "tiny" or not is_used or shaping.grams is not None:
        return []
    what = "null are phrases of natural language, which policy tiny never writes."
    action = 'Give words of its own, such as ["<search>"], or choose another policy.model.'
    return [Violation("advantage.shaping.grams", what, action)]
