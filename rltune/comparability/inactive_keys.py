"""Which keys do nothing in a given config, because another key switches them off."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltune.comparability.knobs import updates_per_step
from rltune.comparability.reward_keys import paid_settings
from rltune.comparability.spellings import spellings
from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.filter_effect import effect_of_flat
from rltune.spec.identity import flatten

Rule = tuple[bool, Sequence[str], str]
"""Whether some keys do nothing, the keys, and why."""

OFF = "the filter drops nothing"
ONLY_ZEROS = "the filter drops the groups without spread, and no others"
FILTER_KEYS = tuple(
    f"rollout_filter.{key}"
    for key in ("mode", "ddof", "type", "on_drop", "loss_scaling", "empty_stop_steps")
)

RATIO_KEYS = ("loss.clip_low", "loss.clip_high", "loss.dual_clip", "loss.turn_clip_beta")

RATIO_ONE = "the ratio is 1 where a batch has one optimiser step"
RATIO_NOISE = 1e-4
"""How far two passes in float32 over the same tokens may be apart in the ratio; a bound that is
nearer to 1 than this cuts tokens for that alone."""


def filter_is_on(flat: Mapping[str, Any]) -> bool:
    """Return whether the filter of a flat config can drop a group."""
    return effect_of_flat(flat).can_drop


def drops_inputs(flat: Mapping[str, Any]) -> bool:
    """Return whether the update of a flat config drops inputs of adapters."""
    return bool(flat["policy.lora.rank"] and flat["policy.lora.dropout"])


def credit_of_turns(flat: Mapping[str, Any]) -> str:
    """Return what gives turns credit of their own, `verdicts on turns`; empty for nothing."""
    kind = flat["attribution.kind"]
    if kind == "adca":
        alphas = {flat["attribution.alpha"]}
        if flat["attribution.alpha_schedule"] == "cosine":
            alphas.add(flat["attribution.alpha_min"])
        return "verdicts on turns" if max(alphas) > 0 else ""
    is_gain = kind == "info_gain" and flat["attribution.mode"] != "none"
    return "the information gain of turns" if is_gain and flat["attribution.ig_coef"] else ""


def inert_keys(config: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted key -> why it has no effect in this config."""
    flat = flatten(config)
    rules = (
        *_of_estimator(flat),
        *_of_adapters(flat),
        *_of_loss(flat),
        *_of_engine(flat),
        *_of_rollouts(flat),
        *_of_info_gain(flat),
        *_of_adca(flat),
        *_of_shaping(flat),
        *_of_signals(flat),
    )
    return {key: why for is_inert, keys, why in rules if is_inert for key in keys if key in flat}


def settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted key -> what it and the other keys with the same text come to in this config.

    Two configs in which a key comes to the same do not differ in it: top_p 1.0 and top_k 1.0 both
    drop nothing.
    """
    flat = flatten(config)
    effect = effect_of_flat(flat)
    found = {**spellings(flat), **dict(paid_settings(flat))}
    if not effect.is_ranked:
        keys = _below("rollout_filter", "strategy", "value", "include_zero", "metric")
        found |= dict.fromkeys(keys, ONLY_ZEROS if effect.drops_zeros else OFF)
    if _ratio_is_one(flat):
        found["loss.kind"] = f"{RATIO_ONE}, and every loss has the gradient of reinforce"
    if flat["attribution.kind"] == "adca":
        found |= _weight_of_verdicts(flat)
    if flat["attribution.kind"] == "info_gain" and _is_outcome_alone(flat):
        keys = _below("attribution", "mode", "ig_type", "ig_coef", "gamma")
        found |= dict.fromkeys((*keys, "advantage.singleton"), "the outcome alone counts")
    return found


def _weight_of_verdicts(flat: Mapping[str, Any]) -> dict[str, str]:
    alpha, last = flat["attribution.alpha"], flat["attribution.alpha_min"]
    is_level = flat["attribution.alpha_schedule"] == "constant" or alpha == last
    n_judged = _judged_steps(flat)
    why = f"attribution.alpha is {alpha:g} in every step with verdicts"
    keys = _below("attribution", "alpha_schedule", "alpha_min", "alpha_steps")
    found = dict.fromkeys(keys, why) if is_level or n_judged == 1 else {}
    if n_judged == flat["budget.steps"]:
        found["attribution.first_steps"] = "turns are judged in every step"
    return found


def _judged_steps(flat: Mapping[str, Any]) -> int:
    """Return in how many training steps turns may be judged; alpha starts to move after one."""
    first, steps = flat["attribution.first_steps"], flat["budget.steps"]
    return int(steps if first is None else min(first, steps))


def _below(section: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names)


def _of_estimator(flat: Mapping[str, Any]) -> Iterator[Rule]:
    kind, has_std = flat["advantage.kind"], flat.get("advantage.normalize_std", True)
    critic = _below("critic", "lr", "value_clip", "backbone", "warmup_steps")
    yield kind not in CRITIC_KINDS, critic, f"advantage.kind {kind} has no critic"
    yield not has_std, ("advantage.ddof",), "advantage.normalize_std is false"
    is_unmoved = _has_one_exact_step(flat) and flat["critic.value_clip"] > RATIO_NOISE
    yield is_unmoved, critic[1:2], "no value has moved where a batch has one optimiser step"


def _of_adapters(flat: Mapping[str, Any]) -> Iterator[Rule]:
    keys = _below("policy.lora", "alpha", "dropout", "targets", "init")
    yield flat["policy.lora.rank"] == 0, keys, "policy.lora.rank is 0"


def _of_loss(flat: Mapping[str, Any]) -> Iterator[Rule]:
    has_kl = flat["loss.use_kl_loss"]
    has_gain = flat.get("attribution.mode", "none") != "none"
    is_normed = flat["loss.aggregation"] == "seq-mean-token-sum-norm"
    is_steered = has_kl and flat["loss.kl_target"] is not None
    yield not has_kl, ("loss.kl_type", "loss.kl_target"), "loss.use_kl_loss is false"
    yield not is_steered, ("loss.kl_horizon",), "no KL is steered to"
    yield not is_normed, ("loss.sum_norm",), "loss.aggregation is not seq-mean-token-sum-norm"
    yield _ratio_is_one(flat), RATIO_KEYS, RATIO_ONE
    yield not has_gain, ("loss.turn_clip_beta",), "no turn has a gain"


def _ratio_is_one(flat: Mapping[str, Any]) -> bool:
    """Return whether the policy that learns is the one that sampled, in every optimiser step.

    In bfloat16 two passes over the same tokens differ by rounding, which a tight clip can feel; in
    float32 by less than `RATIO_NOISE`, which a tighter clip feels still. With dropout they differ
    by what the update drops.
    """
    return _has_one_exact_step(flat) and _nearest_bound(flat) > RATIO_NOISE


def _has_one_exact_step(flat: Mapping[str, Any]) -> bool:
    is_exact = flat["policy.dtype"] == "float32" and not drops_inputs(flat)
    return is_exact and updates_per_step(flat) == 1


def _nearest_bound(flat: Mapping[str, Any]) -> float:
    """Return how far from 1 the nearest bound on a ratio is, at the least gain of a turn."""
    if flat["loss.kind"] == "reinforce":
        return math.inf
    narrowed = 1.0 - flat.get("loss.turn_clip_beta", 0.0)
    bounds = [narrowed * flat["loss.clip_low"], narrowed * flat["loss.clip_high"]]
    if (dual_clip := flat.get("loss.dual_clip")) is not None:
        bounds.append(dual_clip - 1.0)
    return float(min(bounds))


def _of_engine(flat: Mapping[str, Any]) -> Iterator[Rule]:
    engine = flat["rollout.engine"]
    keys = _below("rollout.vllm", "kv_cache_gib", "eager", "sleep")
    yield engine != "vllm", keys, f"rollout.engine is {engine}"
    has_no_gpu = engine == "vllm" and flat["resources.gpus"] == 0
    yield has_no_gpu, keys[2:], "resources.gpus is 0"


def _of_rollouts(flat: Mapping[str, Any]) -> Iterator[Rule]:
    effect = effect_of_flat(flat)
    is_on, is_ranked = effect.can_drop, effect.is_ranked
    is_share = effect.strategy == "top_p" and effect.value < 1.0
    zero, order = ("rollout_filter.include_zero",), ("rollout_filter.type", "rollout_filter.ddof")
    yield not is_on, FILTER_KEYS, OFF
    yield not is_ranked and effect.include_zero, ("rollout_filter.metric",), OFF
    yield is_on and not is_share, ("rollout_filter.mode",), "it is used by top_p below 1.0 only"
    yield is_on and not effect.is_spread, order[1:], "rollout_filter.metric is a mean"
    yield is_on and not is_ranked, order, ONLY_ZEROS
    yield not effect.is_spread, zero, "a mean is no spread, and not 0"
    full = "a share of the sum, best first, is full before the groups that score 0"
    yield effect.is_spread and not effect.looks_at_zeros, zero, full
    never = not (effect.drops_zeros or effect.is_share_of_mass)
    yield is_on and never, FILTER_KEYS[-1:], "some group is always kept"
    bounds = _below("rollout_correction", "cap", "band_low", "band_high")
    is_one = flat["rollout.engine"] == "torch" and flat["policy.dtype"] == "float32"
    for key in bounds if is_one else ():
        is_far = abs(flat.get(key, 1.0) - 1.0) > RATIO_NOISE
        yield is_far, (key,), "the engine torch samples with the trainer's own probabilities"


def _of_info_gain(flat: Mapping[str, Any]) -> Iterator[Rule]:
    if flat["attribution.kind"] != "info_gain":
        return
    is_off, has_no_weight = flat["attribution.mode"] == "none", flat["attribution.ig_coef"] == 0
    keys = _below("attribution", "ig_type", "ig_coef", "gamma")
    alone = ("advantage.singleton",)
    yield is_off, keys, "attribution.mode is none"
    yield not is_off, alone, "attribution.kind info_gain normalises the outcome itself"
    yield has_no_weight, ("attribution.gamma",), "attribution.ig_coef is 0"
    yield _no_gain_counts(flat), ("attribution.ig_type",), "attribution.ig_coef is 0"


def _no_gain_counts(flat: Mapping[str, Any]) -> bool:
    """Return whether gains are computed and then weigh nothing, not in a clip bound either.

    Under joint they are part of what the outcome is normalised over.
    """
    is_read = flat["attribution.mode"] in ("none", "joint") or flat.get("loss.turn_clip_beta")
    return flat["attribution.ig_coef"] == 0 and not is_read


def _is_outcome_alone(flat: Mapping[str, Any]) -> bool:
    """Return whether info_gain comes to the outcome of each episode, normalised in its group.

    Without a mode the estimator normalises it: alike, but for an episode alone in its group.
    """
    if flat["attribution.mode"] == "none":
        return bool(flat["advantage.singleton"] == 0)
    return _no_gain_counts(flat)


def _of_adca(flat: Mapping[str, Any]) -> Iterator[Rule]:
    if flat["attribution.kind"] != "adca":
        return
    is_normal = flat["attribution.normalize"]
    schedule, alpha = flat["attribution.alpha_schedule"], flat["attribution.alpha"]
    is_constant, is_level = schedule == "constant", alpha == flat["attribution.alpha_min"]
    is_allocated = flat["attribution.scheme"] == "allocation"
    judge = tuple(key for key in flat if key.startswith("attribution.llm."))
    base = ("attribution.fix_base",)
    verdicts = _below("attribution", "judge", "scheme", "normalize", "scope", "skip", "first_steps")
    yield is_normal, base, "the z-score divides it out"
    yield is_allocated, base, "attribution.scheme allocation shares out the outcome"
    yield not is_normal, ("attribution.scope",), "attribution.normalize is false"
    steps = _below("attribution", "alpha_min", "alpha_steps")
    yield is_constant, steps, "attribution.alpha_schedule is constant"
    yield flat["attribution.judge"] != "llm", judge, "attribution.judge is not llm"
    yield not is_constant and is_level, steps[1:], "attribution.alpha_min is alpha"
    is_once = _judged_steps(flat) == 1
    yield not is_constant and is_once, steps, "turns are judged in the first step only"
    has_no_weight = alpha == 0 and (is_constant or is_level)
    yield has_no_weight, (*verdicts, *base, *judge), "attribution.alpha is 0"


def _of_shaping(flat: Mapping[str, Any]) -> Iterator[Rule]:
    has_gtpo, schedule = (
        flat["advantage.shaping.gtpo_beta"] > 0,
        flat["advantage.shaping.sepa.schedule"],
    )
    sepa = _below("advantage.shaping.sepa", "steps", "delay", "gate")
    auto = _below("advantage.shaping.sepa", "ema_decay", "warmup", "var_threshold")
    looks = schedule != "none" or flat["advantage.shaping.hicra_alpha"] > 0
    yield (
        not has_gtpo,
        _below("advantage.shaping", "signal", "scope"),
        "advantage.shaping.gtpo_beta is 0",
    )
    yield schedule == "none", sepa, "advantage.shaping.sepa.schedule is none"
    yield schedule != "auto", auto, f"advantage.shaping.sepa.schedule is {schedule}"
    yield not looks, ("advantage.shaping.grams",), "nothing looks for planning tokens"


def _of_signals(flat: Mapping[str, Any]) -> Iterator[Rule]:
    reward_std = flat["early_stop.reward_std_share"] is None
    heldout = flat["early_stop.heldout_success"] is None
    yield reward_std, ("early_stop.reward_std_steps",), "early_stop.reward_std_share is null"
    yield heldout, ("early_stop.heldout_gates",), "early_stop.heldout_success is null"
    yield flat["collapse.every"] == 0, ("collapse.prompts",), "collapse.every is 0"
