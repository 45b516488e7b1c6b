"""The known intervention knobs, the budget keys, and which keys do nothing in a given config."""

from collections.abc import Iterator, Mapping
from typing import Any

from rltune.spec.crosschecks import can_drop
from rltune.spec.identity import flatten

KNOBS = {
    "loss.entropy_coeff": "an entropy bonus flattens the policy whatever the reward says",
    "loss.kl_loss_coef": "a KL cost ties the policy to its start",
    "rollout_filter.strategy": "decides which prompts teach",
    "rollout_filter.value": "decides how many prompts teach",
    "rollout_filter.mode": "decides what the share is a share of, and its scale dependence",
    "rollout_filter.include_zero": "decides whether prompts without reward spread take part",
    "rollout_filter.on_drop": "decides whether dropped prompts cost optimiser steps",
    "rollout_filter.loss_scaling": "scales the advantages with the kept share",
}
"""What published sweeps vary -> why it must be stated when it is not the axis (S3).

Estimator, clipping and optimiser are the method, not interventions: they come from base and
profile, are part of S1 and S9, and need no line in every sweep file.
"""

FILTER_KEYS = tuple(
    f"rollout_filter.{key}" for key in ("mode", "metric", "type", "on_drop", "loss_scaling")
)


def filter_is_on(flat: Mapping[str, Any]) -> bool:
    """Return whether the filter of a flat config can drop a group."""
    return can_drop(
        strategy=flat["rollout_filter.strategy"],
        value=flat["rollout_filter.value"],
        include_zero=flat["rollout_filter.include_zero"],
    )


def inert_keys(config: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted key -> why it has no effect in this config."""
    return dict(_inert(flatten(config)))


def _inert(flat: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not flat["loss.use_kl_loss"]:
        yield "loss.kl_type", "loss.use_kl_loss is false"
    if flat["loss.aggregation"] != "seq-mean-token-sum-norm":
        yield "loss.sum_norm", "loss.aggregation is not seq-mean-token-sum-norm"
    if not filter_is_on(flat):
        for key in FILTER_KEYS:
            yield key, "the filter drops nothing"
    elif flat["rollout_filter.strategy"] != "top_p" or flat["rollout_filter.value"] >= 1.0:
        yield "rollout_filter.mode", "it is used by top_p below 1.0 only"
    if flat["advantage.kind"] == "grpo":
        for key in ("critic.lr", "critic.value_clip", "critic.backbone", "critic.warmup_steps"):
            yield key, "advantage.kind grpo has no critic"


def budget(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be equal for a fair comparison (S5); products where only they count."""
    flat = flatten(config)
    return {
        "budget.steps": flat["budget.steps"],
        "rollouts per step": flat["rollout.groups"] * flat["rollout.group_size"],
        "rollout.max_response_tokens": flat["rollout.max_response_tokens"],
        "rollout.max_context": flat["rollout.max_context"],
        "gate.every": flat["gate.every"],
        "gate.tasks": flat["gate.tasks"],
        "gate.temperature": flat["gate.temperature"],
    }


def updates_per_step(config: Mapping[str, Any]) -> int:
    """Return optimiser steps per training step when no group is dropped."""
    flat = flatten(config)
    rollouts = int(flat["rollout.groups"]) * int(flat["rollout.group_size"])
    return rollouts // int(flat["optim.mini_batch_size"]) * int(flat["optim.epochs"])
