"""Checks over several keys of a trial config, each with what to do instead."""

from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING

from rltune.spec.backend_checks import (
    ahead_violations,
    engine_violations,
    rank_violations,
    remote_violations,
    shared_engine_violations,
)
from rltune.spec.credit_checks import (
    attribution_violations,
    maxrl_violations,
    planning_violations,
    turn_clip_violations,
)
from rltune.spec.errors import Violation, refuse
from rltune.spec.estimators import GROUP_KINDS
from rltune.spec.filter_effect import effect_of
from rltune.spec.warmstart_data import TAUGHT_ENVS

if TYPE_CHECKING:
    from rltune.spec.schema.advantage import Advantage
    from rltune.spec.schema.env import Env
    from rltune.spec.schema.loss import LossTerms
    from rltune.spec.schema.rollout import RolloutConfig, RolloutFilter
    from rltune.spec.schema.run import CollapseConfig
    from rltune.spec.schema.trial import OptimConfig, PolicyConfig


KL_BAND = 0.2
"""Largest relative error of a KL that moves its coefficient, as in `losses.kl`."""


def require_untruncated_top_p(top_p: float) -> float:
    """Return top_p when it is 1: truncated sampling makes logp_old and logp incomparable (C12)."""
    if top_p != 1.0:
        what = f"{top_p!r} would truncate training samples, which biases every importance ratio."
        refuse([Violation("", what, "Set it to 1.0; use rollout.temperature for sharper samples.")])
    return top_p


def require_untruncated_top_k(top_k: int) -> int:
    """Return top_k when it is -1, for the reason of `require_untruncated_top_p`."""
    if top_k != -1:
        what = f"{top_k!r} would truncate training samples, which biases every importance ratio."
        refuse([Violation("", what, "Set it to -1; use rollout.temperature for sharper samples.")])
    return top_k


def require_tokens(value: object) -> object:
    """Return a number of tokens from 1 or `auto` unchanged."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    what = f"{value!r} is no number of tokens."
    refuse([Violation("", what, "Give a whole number from 1, or auto.")])
    return value


def rollout_violations(rollout: "RolloutConfig") -> list[Violation]:
    """Return what the token limits contradict."""
    if rollout.max_response_tokens < rollout.max_context:
        return []
    what = f"{rollout.max_response_tokens} tokens of response leave no room for a prompt."
    limit = f"Give less than rollout.max_context, {rollout.max_context}."
    return [Violation("max_response_tokens", what, limit)]


def loss_violations(loss: "LossTerms") -> list[Violation]:
    """Return what the KL switch and its coefficient contradict: they are one knob."""
    if loss.use_kl_loss and loss.kl_loss_coef == 0.0:
        what = "0.0 with loss.use_kl_loss true runs a reference model for nothing."
        action = "Give a coefficient above 0, or set loss.use_kl_loss to false."
        return [Violation("kl_loss_coef", what, action)]
    if not loss.use_kl_loss and loss.kl_target is not None:
        what = f"{loss.kl_target!r} steers nothing while loss.use_kl_loss is false."
        return [Violation("kl_target", what, "Set it to null, or loss.use_kl_loss to true.")]
    if not loss.use_kl_loss and loss.kl_loss_coef > 0.0:
        what = f"{loss.kl_loss_coef!r} has no effect while loss.use_kl_loss is false."
        action = "Set loss.use_kl_loss to true; couple it when this is the axis."
        return [Violation("kl_loss_coef", what, action)]
    return []


def horizon_violations(loss: "LossTerms", rollout: "RolloutConfig") -> list[Violation]:
    """Return whether one step could turn the adaptive KL coefficient to 0 or below."""
    largest = KL_BAND * rollout.groups * rollout.group_size
    if loss.kl_target is None or loss.kl_horizon > largest:
        return []
    what = f"{loss.kl_horizon!r} lets one step of {rollout.groups * rollout.group_size} episodes "
    what += "turn the coefficient to 0 or below."
    return [Violation("loss.kl_horizon", what, f"Give more than {largest:g}.")]


def clip_violations(loss: "LossTerms") -> list[Violation]:
    """Return whether a ratio may fall to 0, which only cispo has a use for."""
    clip_low = getattr(loss, "clip_low", 0.0)
    if clip_low < 1.0 or loss.kind == "cispo":
        return []
    what = f"{clip_low!r} is not a valid bound for loss.kind {loss.kind}."
    return [Violation("clip_low", what, "Give less than 1.0, or choose cispo.")]


def optim_violations(optim: "OptimConfig") -> list[Violation]:
    """Return whether weights decay past 0."""
    if optim.lr * optim.weight_decay <= 1.0:  # AdamW: weights *= 1 - lr * weight_decay
        return []
    what = f"{optim.weight_decay!r} times optim.lr takes more than all of a weight in a step."
    return [Violation("weight_decay", what, f"Give at most {1 / optim.lr:g}.")]


def filter_value_violations(
    rollout_filter: "RolloutFilter", rollout: "RolloutConfig"
) -> list[Violation]:
    """Return whether the filter's value is outside the domain of its strategy."""
    strategy, value = rollout_filter.strategy, rollout_filter.value
    if strategy == "top_k_abs":
        if value.is_integer() and 1 <= value <= rollout.groups:
            return []
        what = f"{value!r} is not a number of groups for strategy top_k_abs."
        action = f"Give a whole number from 1 to rollout.groups, {rollout.groups}."
        return [Violation("rollout_filter.value", what, action)]
    if 0.0 < value <= 1.0:
        return []
    what = f"{value!r} is not a share for strategy {strategy}."
    return [Violation("rollout_filter.value", what, "Give a number above 0 and at most 1.")]


def group_violations(
    rollout: "RolloutConfig", advantage: "Advantage", rollout_filter: "RolloutFilter"
) -> list[Violation]:
    """Return what needs the spread of a group when a group has one member (B3)."""
    if rollout.group_size > 1:
        return []
    needs = []
    if advantage.kind in GROUP_KINDS:
        needs.append(f"advantage.kind {advantage.kind}")
    effect = effect_of(rollout_filter, rollout)
    if effect.is_spread and effect.can_drop:
        needs.append(f"rollout_filter.metric {rollout_filter.metric}")
    action = "Give 2 or more; the spread of a single rollout is not defined."
    return [
        Violation("rollout.group_size", f"1 cannot be used with {need}.", action) for need in needs
    ]


def batch_violations(rollout: "RolloutConfig", optim: "OptimConfig") -> list[Violation]:
    """Return whether the mini batches fail to tile the rollouts of a step, or to hold groups."""
    rollouts = rollout.groups * rollout.group_size
    if rollouts % optim.mini_batch_size == 0:
        return _group_tiling_violations(rollout, optim)
    what = (
        f"{optim.mini_batch_size} does not divide the {rollouts} rollouts of a step "
        "(rollout.groups x rollout.group_size)."
    )
    action = "Give a divisor, so that every optimiser step has the same size."
    return [Violation("optim.mini_batch_size", what, action)]


def _group_tiling_violations(rollout: "RolloutConfig", optim: "OptimConfig") -> list[Violation]:
    """Return whether a mini batch that is drawn by group holds no whole number of groups."""
    if optim.minibatch_by == "row" or optim.mini_batch_size % rollout.group_size == 0:
        return []
    what = f"{optim.mini_batch_size} rollouts are no whole groups of {rollout.group_size} "
    what += "(rollout.group_size), and optim.minibatch_by is group."
    action = f"Give a multiple of {rollout.group_size}, or set optim.minibatch_by to row."
    return [Violation("optim.mini_batch_size", what, action)]


def collapse_violations(collapse: "CollapseConfig", rollout: "RolloutConfig") -> list[Violation]:
    """Return whether more prompts are to be cross-scored than a step has, or too few to compare."""
    if collapse.every == 0 or rollout.groups >= collapse.prompts:
        return []
    what = f"{collapse.prompts} prompts are more than the {rollout.groups} groups of a step."
    most = (
        f"Give at most rollout.groups, {rollout.groups}"
        if rollout.groups > 1
        else "Raise rollout.groups"
    )
    return [Violation("collapse.prompts", what, f"{most}, or set collapse.every to 0.")]


def tiny_violations(env: "Env", policy: "PolicyConfig") -> list[Violation]:
    """Return whether the tiny policy is shown text that its tokenizer does not know."""
    if policy.model != "tiny":
        return []
    if env.kind not in TAUGHT_ENVS:
        what = f"'tiny' exists for {', '.join(TAUGHT_ENVS)}, not for an env of kind {env.kind!r}."
        return [Violation("policy.model", what, "Give a Hugging Face id or a folder.")]
    other = "or choose another policy.model."
    if env.prompt != "compact":
        what = f"{env.prompt!r} cannot be read by policy.model 'tiny'."
        return [Violation("env.prompt", what, f"Set it to compact, {other}")]
    if env.kind == "multihop_qa" and env.questions is not None:
        what = "policy.model 'tiny' knows the words of the closed world only."
        return [Violation("env.questions", what, f"Set it to null, {other}")]
    return []


def vocabulary_violations(loss: "LossTerms", policy: "PolicyConfig") -> list[Violation]:
    """Return whether the exact KL is asked for over a large vocabulary."""
    if policy.model == "tiny" or loss.kl_type not in ("full", "full+"):
        return []
    what = f"{loss.kl_type!r} needs the whole vocabulary of two models in memory."
    action = "Use it with policy.model tiny, or choose k2 or k3+."
    return [Violation("loss.kl_type", what, action)]


CROSS_CHECKS: tuple[Callable[..., list[Violation]], ...] = (
    filter_value_violations,
    group_violations,
    batch_violations,
    tiny_violations,
    vocabulary_violations,
    horizon_violations,
    attribution_violations,
    turn_clip_violations,
    planning_violations,
    maxrl_violations,
    collapse_violations,
    engine_violations,
    ahead_violations,
    remote_violations,
    rank_violations,
    shared_engine_violations,
)
"""Checks over several sections; the parameters are named like the sections that they read."""


def cross_violations(sections: Mapping[str, object]) -> list[Violation]:
    """Return what sections contradict; a check whose sections are not all there is skipped."""
    found = []
    for check in CROSS_CHECKS:
        names = _sections_of(check)
        if all(name in sections for name in names):
            found += check(**{name: sections[name] for name in names})
    return found


@cache  # for every config that is checked
def _sections_of(check: Callable[..., list[Violation]]) -> tuple[str, ...]:
    return tuple(signature(check).parameters)
