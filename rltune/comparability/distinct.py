"""S6 by keys: conditions that resolve to one run, and pairs that need a probe to tell."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rltune.comparability.findings import Finding, error
from rltune.comparability.inactive_keys import inactive_keys, settings
from rltune.comparability.reward_keys import weights
from rltune.spec.identity import MISSING, diff_configs, identity_view
from rltune.spec.keys import overlaps, typed

Configs = Mapping[str, Mapping[str, Any]]
"""Condition label -> resolved config."""

PROBED = (
    "advantage",
    "attribution",
    "loss",
    "rollout_filter",
    "rollout_correction",
    "critic.warmup_steps",
    "optim.mini_batch_size",
    "optim.minibatch_by",
    "optim.tokens_per_micro_batch",
    "optim.micro_batch_size",
    "optim.epochs",
    "optim.gradient_checkpointing",
)
"""Keys whose effect on the gradient the probe computes. Any other makes two runs of two conditions:
another policy, other tasks, other samples, another optimiser. Of `reward.terms` the probe sees a
factor on all weights."""

UNSEEN = (
    "attribution.judge",
    "attribution.llm",
    "advantage.shaping.sepa.gate",
    "loss.clip_high",
    "loss.clip_low",
    "loss.dual_clip",
    "loss.kl_horizon",
    "loss.kl_target",
    "loss.turn_clip_beta",
    "rollout_correction.band_high",
    "rollout_correction.band_low",
    "rollout_correction.cap",
    "rollout_filter.empty_stop_steps",
)
"""Keys among them that act through what a trial measures, or where a ratio lies between two values:
fixed batches may miss that. Where they have an effect at all, they make two runs."""

ADDED_TERMS = ("loss.kl_loss_coef", "loss.use_kl_loss", "loss.entropy_coeff")
"""Keys that add a term to the gradient: conditions that differ in them alone need no probe."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What S6 knows of a condition: identity, inactive keys, and what keys come to."""

    view: Mapping[str, Any]
    inactive: Mapping[str, str]
    settings: Mapping[str, str]


def _known(config: Mapping[str, Any]) -> _Known:
    own = typed(config)
    return _Known(identity_view(config), inactive_keys(own), settings(own))


def check_distinct(configs: Configs) -> Iterator[Finding]:
    """Yield S6: two conditions that are one run, also when they differ in inactive keys only."""
    known = {label: _known(config) for label, config in configs.items()}
    for (a, left), (b, right) in combinations(known.items(), 2):
        differing, reasons = _differences(left, right)
        if len(reasons) < len(differing):
            continue
        message = f"{a!r} and {b!r} resolve to the same config."
        if reasons:
            named = ", ".join(f"{key} ({why})" for key, why in sorted(reasons.items()))
            message = f"{a!r} and {b!r} are the same run: they differ only in {named}."
        yield error("S6", message, "Remove one of them, or give them different values.")


def _differences(left: _Known, right: _Known) -> tuple[dict[str, tuple[Any, Any]], dict[str, str]]:
    """Return the keys in which two configs differ, and why some of them change nothing.

    A key that one of them does not have, and that does nothing in the other, is no difference.
    """
    inactive = {**left.inactive, **right.inactive}
    differing = {
        key: pair
        for key, pair in diff_configs(left.view, right.view).items()
        if not (MISSING in pair and key in inactive)
    }
    same = left.settings.items() & right.settings.items()
    silent = {key: why for key, why in left.inactive.items() if key in right.inactive} | dict(same)
    return differing, {key: why for key, why in silent.items() if key in differing}


def pairs_to_probe(configs: Configs) -> tuple[tuple[str, str], ...]:
    """Return the pairs of conditions that only their gradients can tell apart, or not."""
    known = {label: _known(config) for label, config in configs.items()}
    return tuple((a, b) for a, b in combinations(known, 2) if _needs_probe(known[a], known[b]))


def _needs_probe(left: _Known, right: _Known) -> bool:
    differing, reasons = _differences(left, right)
    telling = {key: pair for key, pair in differing.items() if key not in reasons}
    if not telling or telling.keys() <= set(ADDED_TERMS):
        return False
    if any(_is_seen_elsewhere(key, pair) for key, pair in telling.items()):
        return False
    if "reward.terms" in telling and not (_pays_at_the_end(left) and _pays_at_the_end(right)):
        return False
    has_target = left.view["loss.kl_target"] is not None
    return not (has_target and "loss.kl_type" in telling)  # its value steers the coefficient


def _is_seen_elsewhere(key: str, pair: tuple[Any, Any]) -> bool:
    """Return whether a trial shows the effect of a key, and the probe does not."""
    if key == "reward.terms":
        return not _is_one_reward(*pair)
    if not any(overlaps(key, own) for own in PROBED):
        return True
    return MISSING not in pair and any(overlaps(key, own) for own in UNSEEN)


def _is_one_reward(left: Any, right: Any) -> bool:
    """Return whether one rubric pays the other times a positive factor, for the same success."""
    if MISSING in (left, right) or left[0]["score"] != right[0]["score"]:
        return False
    ours, theirs = weights(left), weights(right)
    if ours.keys() != theirs.keys():
        return False
    factors = [theirs[score] / weight for score, weight in ours.items()]
    return all(math.isclose(x, factors[0]) and x > 0 for x in factors)


def _pays_at_the_end(known: _Known) -> bool:
    return known.view["reward.turn_rewards"] == "none" and not known.view["reward.format_penalty"]


def moves_selection(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether two conditions differ in what the rollout filter selects."""
    differing, reasons = _differences(_known(left), _known(right))
    return any(overlaps(key, "rollout_filter") for key in differing.keys() - reasons.keys())
