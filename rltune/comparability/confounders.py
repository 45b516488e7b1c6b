"""S8: what is known to move along with a knob although no key says so. Each has a remedy."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from rltune.comparability.findings import Finding, listed, warning
from rltune.comparability.inactive_keys import credit_of_turns, drops_inputs, filter_is_on
from rltune.comparability.knobs import (
    is_drawing_key,
    moving_task_keys,
)
from rltune.comparability.scale_confounders import CONSTANT_NORM, hidden_scales
from rltune.spec.identity import flatten, same_value
from rltune.spec.keys import overlaps
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.warmstart_data import TAUGHT_ENVS, UNSEEN_TASKS

Configs = Mapping[str, Mapping[str, Any]]
"""Condition label -> flat config."""

KEPT_TOKENS = (
    "rollout_filter",
    "env.max_turns",
    "env.max_actions",
    "env.max_actions_per_turn",
    "env.max_searches",
)
"""Axes that change which tokens, or how many, are trained on."""


def hidden_axes(
    configs: Mapping[str, Mapping[str, Any]], moving: Sequence[str]
) -> tuple[Finding, ...]:
    """Return the S8 warnings of a sweep.

    Args:
        configs: Condition label -> resolved config.
        moving: Dotted axis and coupled keys.

    """
    flat = {label: flatten(config) for label, config in configs.items()}
    return (
        *_dropped_groups(flat),
        *_dropped_verdicts(flat),
        *_kl_without_gradient(flat),
        *_ratio_with_dropout(flat),
        *_scale_dependent_filter(flat),
        *_moving_normaliser(flat, moving),
        *hidden_scales(flat, moving),
        *_other_tasks(configs),
        *_other_success(configs),
        *_seen_tasks(flat),
    )


def _dropped_groups(flat: Configs) -> Iterator[Finding]:
    labels = [
        label
        for label, config in flat.items()
        if filter_is_on(config) and config["rollout_filter.on_drop"] == "drop"
    ]
    if labels:
        yield warning(
            "S8.drop_changes_updates",
            f"The filter drops groups in {listed(labels)}, so the number of optimiser steps, and "
            "which rows share one, depend on the rewards and differ between conditions.",
            "Set rollout_filter.on_drop: mask.",
        )


def _dropped_verdicts(flat: Configs) -> Iterator[Finding]:
    """Yield where a filter drops groups whose turns have credit of their own."""
    teaching: dict[tuple[str, str], list[str]] = {}
    for label, config in flat.items():
        credit = credit_of_turns(config)
        if credit and filter_is_on(config):
            score = _SCORES.get(config["rollout_filter.metric"], "the spread of their rewards")
            teaching.setdefault((score, credit), []).append(label)
    for (score, credit), labels in teaching.items():
        equal = (
            ""
            if score in _SCORES.values()
            else (": a group of equal rewards has turns of different worth")
        )
        yield warning(
            "S8.dropped_verdicts",
            f"The filter in {listed(labels)} drops groups by {score}, and with them what "
            f"{credit} would teach{equal}.",
            "Set rollout_filter.value: 1.0 and rollout_filter.include_zero: true, with strategy "
            "top_p.",
        )


_SCORES = {"length": "their mean length", "entropy": "their mean surprisal"}


def _kl_without_gradient(flat: Configs) -> Iterator[Finding]:
    labels = [
        label
        for label, config in flat.items()
        if config["loss.use_kl_loss"] and config["loss.kl_type"] == "k1"
    ]
    if labels:
        yield warning(
            "S8.k1_loss",
            f"The KL loss in {listed(labels)} is k1 (logp - logp_ref), whose expected gradient is "
            "zero on-policy: the coefficient adds noise, not a constraint.",
            "Set loss.kl_type: k2, or k3+.",
        )


def _ratio_with_dropout(flat: Configs) -> Iterator[Finding]:
    labels = [
        label
        for label, config in flat.items()
        if drops_inputs(config) and config["loss.kind"] != "reinforce"
    ]
    if labels:
        yield warning(
            "S8.dropout_ratio",
            f"Adapters in {listed(labels)} drop inputs when the loss is computed, and not when "
            "the old logprobs are: the ratio is not 1 in the first optimiser step either. A "
            "tight clip cuts tokens for that alone (actor/pg_clipfrac), and actor/ppo_kl counts "
            "the noise of dropout with the movement of the policy.",
            "Set policy.lora.dropout: 0.0.",
        )


def _scale_dependent_filter(flat: Configs) -> Iterator[Finding]:
    labels = [
        label
        for label, config in flat.items()
        if config["rollout_filter.strategy"] == "top_p"
        and config["rollout_filter.value"] < 1.0
        and config["rollout_filter.mode"] == "softmax"
    ]
    if labels:
        yield warning(
            "S8.softmax_scale",
            f"The filter in {listed(labels)} takes a share of softmax(score), which depends on "
            "the scale of the score: values may select identical groups, and do not carry over "
            "to another environment.",
            "Set rollout_filter.mode: mass.",
        )


def _moving_normaliser(flat: Configs, moving: Sequence[str]) -> Iterator[Finding]:
    modes = {config["loss.aggregation"] for config in flat.values()}
    direct = [key for key in moving if key in ("loss.aggregation", "loss.sum_norm")]
    if direct:
        yield warning(
            "S8.normaliser",
            f"The axis {', '.join(direct)} changes the size of the gradient beside what it weighs: "
            "AdamW divides a constant factor out, but optim.grad_clip cuts other steps.",
            "Set optim.grad_clip above every actor/grad_norm, and accept this with that reason.",
        )
        return
    touching = [key for key in moving if any(overlaps(key, other) for other in KEPT_TOKENS)]
    sizes = {config["optim.mini_batch_size"] for config in flat.values()}
    if not touching or (modes == {CONSTANT_NORM} and len(sizes) == 1):
        return
    divisor = (
        f"{CONSTANT_NORM} divides by optim.mini_batch_size, which moves with {', '.join(touching)}"
        if modes == {CONSTANT_NORM}
        else f"loss.aggregation {', '.join(sorted(modes))} divides by what is trained on, which "
        f"{', '.join(touching)} changes"
    )
    yield warning(
        "S8.normaliser",
        f"{divisor}: the weight of a token differs between conditions.",
        f"Set loss.aggregation: {CONSTANT_NORM} with one loss.sum_norm and one "
        "optim.mini_batch_size.",
    )


def _other_tasks(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    keys = [key for key in moving_task_keys(configs.values()) if not overlaps(key, "reward")]
    if keys:
        yield warning(
            "S8.tasks",
            f"{', '.join(keys)} changes the frozen tasks, or their floor and ceiling: conditions "
            "are not trained and evaluated on the same ones.",
            "Hold it; or, where other tasks are the intervention, accept this with that reason.",
        )


def _other_success(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    keys = [key for key in moving_task_keys(configs.values()) if overlaps(key, "reward")]
    if keys:
        yield warning(
            "S8.success",
            f"{', '.join(keys)} may change what counts as a success: success rates of different "
            "conditions are then not of one kind.",
            "Compare a measure of the env that all conditions have (metric.name), or accept this "
            "with the reason why success means the same.",
        )


def _seen_tasks(flat: Configs) -> Iterator[Finding]:
    """Yield where the tiny policy may be evaluated on levels that it was warm-started on."""
    labels = {
        label: _beyond_the_unseen(config)
        for label, config in flat.items()
        if config["policy.model"] == "tiny"
    }
    labels = {label: keys for label, keys in labels.items() if keys}
    if labels:
        keys = dict.fromkeys(key for keys in labels.values() for key in keys)
        yield warning(
            "S8.seen_tasks",
            f"The demonstrations of policy tiny exclude only the first {UNSEEN_TASKS} tasks of the "
            f"env that it was taught; with {', '.join(keys)} as in {listed(list(labels))}, "
            "held-out or test tasks may be among its demonstrations.",
            "Leave these keys as they were taught, or name the folder of another policy in "
            "policy.model.",
        )


def _beyond_the_unseen(config: Mapping[str, Any]) -> list[str]:
    """Return the keys by which held-out and test tasks are not those that were kept unseen."""
    taught = _taught(config["env.kind"])
    changed = [
        key
        for key, value in config.items()
        if is_drawing_key(key) and key in taught and not same_value(value, taught[key])
    ]
    counts = [key for key in ("gate.tasks", "gate.test_tasks") if config[key]]
    needed = sum(config[key] for key in counts)
    return changed + (counts if needed > UNSEEN_TASKS else [])


@cache
def _taught(kind: str) -> Mapping[str, Any]:
    """Return the env keys that a tiny policy was warm-started with, but the training split's."""
    config = TrialConfig.model_validate(
        {
            "env": {"kind": kind, "prompt": "compact", **TAUGHT_ENVS[kind]},
            "policy": {"model": "tiny"},
        }
    )
    env = flatten({"env": config.env.model_dump(mode="json")})
    return {key: value for key, value in env.items() if key != "env.train_tasks"}
