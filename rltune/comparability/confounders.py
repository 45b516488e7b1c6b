"""S8: known confounders, which move with a knob although no key says so. Each has a remedy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rltune.comparability.findings import Finding, listed, warning
from rltune.comparability.knobs import (
    credit_of_turns,
    drops_inputs,
    filter_is_on,
    is_drawing_key,
    moving_task_keys,
)
from rltune.comparability.scale_confounders import CONSTANT_NORM, has_kl, scale_confounders
from rltune.spec.identity import flatten, same_value
from rltune.spec.keys import overlaps
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.spec.warmstart_data import TAUGHT_ENVS, UNSEEN_TASKS

Configs = Mapping[str, TrialConfig]
"""Condition label -> config."""

KEPT_TOKENS = (
    "rollout_filter",
    "env.max_turns",
    "env.max_actions",
    "env.max_actions_per_turn",
    "env.max_searches",
)
"""Axes that change which tokens, or how many, are trained on."""


@dataclass(frozen=True, slots=True)
class Trap:
    """A setting that confounds wherever it is, whatever the axis."""

    code: str  # of the finding
    holds: Callable[[TrialConfig], bool]  # whether a condition has it
    message: str  # what it does; `{where}` stands for the conditions
    remedy: str  # what to do instead


def _takes_softmax_share(config: TrialConfig) -> bool:
    own = config.rollout_filter
    return own.strategy == "top_p" and own.value < 1.0 and own.mode == "softmax"


TRAPS = (
    Trap(
        "S8.drop_changes_updates",
        lambda config: filter_is_on(config) and config.rollout_filter.on_drop == "drop",
        "The filter drops groups in {where}, so the number of optimiser steps, and which rows "
        "share one, depend on the rewards and differ between conditions.",
        "Set rollout_filter.on_drop: mask.",
    ),
    Trap(
        "S8.k1_loss",
        lambda config: config.loss.use_kl_loss and config.loss.kl_type == "k1",
        "The KL loss in {where} is k1 (logp - logp_ref), whose expected gradient is zero "
        "on-policy: the coefficient adds noise, not a constraint.",
        "Set loss.kl_type: k2, or k3+.",
    ),
    Trap(
        "S8.k3_clamp",
        lambda config: has_kl(config) and config.loss.kl_type == "k3",
        "The KL loss in {where} is k3, whose value is cut at 10: a token that fell more than 2.6 "
        "nats below the reference has no KL gradient, so that what moved furthest is not pulled "
        "back.",
        "Set loss.kl_type: k3+, or k2.",
    ),
    Trap(
        "S8.dropout_ratio",
        lambda config: drops_inputs(config) and config.loss.kind != "reinforce",
        "Adapters in {where} drop inputs when the loss is computed, and not when the old logprobs "
        "are: the ratio is not 1 in the first optimiser step either. A tight clip cuts tokens for "
        "that alone (actor/pg_clipfrac), and actor/ppo_kl counts the noise of dropout with the "
        "movement of the policy.",
        "Set policy.lora.dropout: 0.0.",
    ),
    Trap(
        "S8.softmax_scale",
        _takes_softmax_share,
        "The filter in {where} takes a share of softmax(score), which depends on the scale of the "
        "score: values may select identical groups, and do not carry over to another environment.",
        "Set rollout_filter.mode: mass.",
    ),
)


def confounders(configs: Configs, moving: Sequence[str]) -> tuple[Finding, ...]:
    """Return the S8 warnings of a sweep."""
    return (
        *_traps(configs),
        *_dropped_verdicts(configs),
        *_moving_normaliser(configs, moving),
        *scale_confounders(configs, moving),
        *_other_tasks(configs),
        *_seen_tasks(configs),
    )


def _traps(configs: Configs) -> Iterator[Finding]:
    for trap in TRAPS:
        labels = [label for label, config in configs.items() if trap.holds(config)]
        if labels:
            yield warning(trap.code, trap.message.format(where=listed(labels)), trap.remedy)


def _dropped_verdicts(configs: Configs) -> Iterator[Finding]:
    """Yield where a filter drops groups whose turns have credit of their own."""
    teaching: dict[tuple[str, str], list[str]] = {}
    for label, config in configs.items():
        credit = credit_of_turns(config)
        if credit and filter_is_on(config):
            score = _SCORES.get(config.rollout_filter.metric, _SPREAD)
            teaching.setdefault((score, credit), []).append(label)
    for (score, credit), labels in teaching.items():
        equal = ": a group of equal rewards has turns of different worth" * (score == _SPREAD)
        yield warning(
            "S8.dropped_verdicts",
            f"The filter in {listed(labels)} drops groups by {score}, and with them what "
            f"{credit} would teach{equal}.",
            "Set rollout_filter.value: 1.0 and rollout_filter.include_zero: true, with strategy "
            "top_p.",
        )


_SPREAD = "the spread of their rewards"
_SCORES = {"length": "their mean length", "entropy": "their mean surprisal"}


def _moving_normaliser(configs: Configs, moving: Sequence[str]) -> Iterator[Finding]:
    modes = {config.loss.aggregation for config in configs.values()}
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
    sizes = {config.optim.mini_batch_size for config in configs.values()}
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


def _other_tasks(configs: Configs) -> Iterator[Finding]:
    moved = moving_task_keys(to_plain(config) for config in configs.values())
    paid = [key for key in moved if overlaps(key, "reward") or overlaps(key, "env.verifier")]
    tasks = [key for key in moved if key not in paid]
    if tasks:
        yield warning(
            "S8.tasks",
            f"{', '.join(tasks)} changes the frozen tasks, or their floor and ceiling: conditions "
            "are not trained and evaluated on the same ones.",
            "Hold it; or, where other tasks are the intervention, accept this with that reason.",
        )
    if paid:
        yield warning(
            "S8.success",
            f"{', '.join(paid)} may change what counts as a success: success rates of different "
            "conditions are then not of one kind.",
            "Compare a measure of the env that all conditions have (metric.name), or accept this "
            "with the reason why success means the same.",
        )


def _seen_tasks(configs: Configs) -> Iterator[Finding]:
    """Yield where the tiny policy may be evaluated on levels that it was warm-started on."""
    by_label = {
        label: _beyond_the_unseen(config)
        for label, config in configs.items()
        if config.policy.model == "tiny"
    }
    labels = [label for label, keys in by_label.items() if keys]
    if labels:
        keys = dict.fromkeys(key for label in labels for key in by_label[label])
        yield warning(
            "S8.seen_tasks",
            f"The demonstrations of policy tiny exclude only the first {UNSEEN_TASKS} tasks of the "
            f"env that it was taught; with {', '.join(keys)} as in {listed(labels)}, "
            "held-out or test tasks may be among its demonstrations.",
            "Leave these keys as they were taught, or name the folder of another policy in "
            "policy.model.",
        )


def _beyond_the_unseen(config: TrialConfig) -> list[str]:
    """Return the keys by which held-out and test tasks are not those that were kept unseen."""
    taught = _taught(config.env.kind)
    changed = [
        key
        for key, value in _env_keys(config).items()
        if is_drawing_key(key) and key in taught and not same_value(value, taught[key])
    ]
    counts = {"gate.tasks": config.gate.tasks, "gate.test_tasks": config.gate.test_tasks}
    used = [key for key, count in counts.items() if count]
    return changed + (used if sum(counts.values()) > UNSEEN_TASKS else [])


def _env_keys(config: TrialConfig) -> dict[str, Any]:
    return flatten({"env": config.env.model_dump(mode="json")})


@cache
def _taught(kind: str) -> Mapping[str, Any]:
    """Return the env keys that a tiny policy was warm-started with, but the training split's."""
    config = TrialConfig.model_validate(
        {
            "env": {"kind": kind, "prompt": "compact", **TAUGHT_ENVS[kind]},
            "policy": {"model": "tiny"},
        }
    )
    return {key: value for key, value in _env_keys(config).items() if key != "env.train_tasks"}
