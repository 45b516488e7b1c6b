"""Keys without effect in a config, because another key switches them off."""

import math
from collections.abc import Iterator, Sequence

from rltune.comparability.knobs import drops_inputs, rollouts_per_step, updates_per_step
from rltune.comparability.reward_keys import paid_settings
from rltune.comparability.spellings import spellings
from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.filter_effect import effect_of
from rltune.spec.identity import flatten
from rltune.spec.schema.advantage import ShapingConfig
from rltune.spec.schema.attribution import AdcaConfig, InfoGainConfig, JudgeConfig
from rltune.spec.schema.loss import Loss
from rltune.spec.schema.trial import TrialConfig, to_plain

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


def inactive_keys(config: TrialConfig) -> dict[str, str]:
    """Return dotted key -> why it has no effect in this config."""
    rules = (
        *_of_estimator(config),
        *_of_adapters(config),
        *_of_loss(config),
        *_of_mini_batches(config),
        *_of_engine(config),
        *_of_filter(config),
        *_of_correction(config),
        *_of_info_gain(config),
        *_of_adca(config),
        *_of_shaping(config.advantage.shaping),
        *_of_signals(config),
    )
    flat = flatten(to_plain(config))
    return {key: why for is_off, keys, why in rules if is_off for key in keys if key in flat}


def settings(config: TrialConfig) -> dict[str, str]:
    """Return dotted key -> what it and the other keys with the same text come to in this config.

    Two configs in which a key comes to the same do not differ in it: top_p 1.0 and top_k 1.0 both
    drop nothing.
    """
    effect = effect_of(config.rollout_filter, config.rollout)
    known = {**spellings(config), **dict(paid_settings(config))}
    if not effect.is_ranked:
        keys = _below("rollout_filter", "strategy", "value", "include_zero", "metric")
        known |= dict.fromkeys(keys, ONLY_ZEROS if effect.drops_zeros else OFF)
    if _ratio_is_one(config):
        known["loss.kind"] = f"{RATIO_ONE}, and every loss has the gradient of reinforce"
    own = config.attribution
    if own.kind == "adca":
        known |= _weight_of_verdicts(own, config.budget.steps)
    if own.kind == "info_gain" and _is_outcome_alone(own, config):
        keys = _below("attribution", "mode", "ig_type", "ig_coef", "gamma")
        known |= dict.fromkeys((*keys, "advantage.singleton"), "the outcome alone counts")
    return known


def _weight_of_verdicts(own: AdcaConfig, steps: int) -> dict[str, str]:
    is_level = own.alpha_schedule == "constant" or own.alpha == own.alpha_min
    n_judged = _judged_steps(own, steps)
    why = f"attribution.alpha is {own.alpha:g} in every step with verdicts"
    keys = _below("attribution", "alpha_schedule", "alpha_min", "alpha_steps")
    known = dict.fromkeys(keys, why) if is_level or n_judged == 1 else {}
    if n_judged == steps:
        known["attribution.first_steps"] = "turns are judged in every step"
    return known


def _judged_steps(own: AdcaConfig, steps: int) -> int:
    """Return in how many training steps turns may be judged; alpha starts to move after one."""
    return min(own.first_steps or steps, steps)


def _below(section: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names)


def _of_estimator(config: TrialConfig) -> Iterator[Rule]:
    own = config.advantage
    critic = _below("critic", "lr", "value_clip", "backbone", "warmup_steps")
    yield own.kind not in CRITIC_KINDS, critic, f"advantage.kind {own.kind} has no critic"
    has_no_std = own.kind == "grpo" and not own.normalize_std
    yield has_no_std, ("advantage.ddof",), "advantage.normalize_std is false"
    is_unmoved = _has_one_exact_step(config) and config.critic.value_clip > RATIO_NOISE
    yield is_unmoved, critic[1:2], "no value has moved where a batch has one optimiser step"


def _of_adapters(config: TrialConfig) -> Iterator[Rule]:
    keys = _below("policy.lora", "alpha", "dropout", "targets", "init")
    yield config.policy.lora.rank == 0, keys, "policy.lora.rank is 0"


def _of_loss(config: TrialConfig) -> Iterator[Rule]:
    loss, own = config.loss, config.attribution
    has_gain = own.kind == "info_gain" and own.mode != "none"
    is_normed = loss.aggregation == "seq-mean-token-sum-norm"
    is_steered = loss.use_kl_loss and loss.kl_target is not None
    keys = ("loss.kl_type", "loss.kl_target")
    yield not loss.use_kl_loss, keys, "loss.use_kl_loss is false"
    yield not is_steered, ("loss.kl_horizon",), "no KL is steered to"
    yield not is_normed, ("loss.sum_norm",), "loss.aggregation is not seq-mean-token-sum-norm"
    yield _ratio_is_one(config), RATIO_KEYS, RATIO_ONE
    yield not has_gain, ("loss.turn_clip_beta",), "no turn has a gain"


def _of_mini_batches(config: TrialConfig) -> Iterator[Rule]:
    keys = ("optim.minibatch_by",)
    is_whole = config.optim.mini_batch_size == rollouts_per_step(config)
    yield is_whole, keys, "a mini-batch is all rollouts of a step"
    yield config.rollout.group_size == 1, keys, "rollout.group_size is 1"


def _ratio_is_one(config: TrialConfig) -> bool:
    """Return whether the policy that learns is the one that sampled, in every optimiser step.

    In bfloat16 two passes over the same tokens differ by rounding, which a tight clip can feel; in
    float32 by less than `RATIO_NOISE`, which a tighter clip feels still. With dropout they differ
    by what the update drops.
    """
    return _has_one_exact_step(config) and _nearest_bound(config.loss) > RATIO_NOISE


def _has_one_exact_step(config: TrialConfig) -> bool:
    is_exact = config.policy.dtype == "float32" and not drops_inputs(config)
    return is_exact and updates_per_step(config) == 1


def _nearest_bound(loss: Loss) -> float:
    """Return how far from 1 the nearest bound on a ratio is, at the least gain of a turn."""
    if loss.kind == "reinforce":
        return math.inf
    nearest = min(loss.clip_low, loss.clip_high)
    if loss.kind == "turn":
        return nearest * (1.0 - loss.turn_clip_beta)
    if loss.kind == "ppo" and loss.dual_clip is not None:
        return min(nearest, loss.dual_clip - 1.0)
    return nearest


def _of_engine(config: TrialConfig) -> Iterator[Rule]:
    engine = config.rollout.engine
    keys = _below("rollout.vllm", "kv_cache_gib", "eager", "sleep", "tensor_parallel")
    yield engine != "vllm", keys, f"rollout.engine is {engine}"
    has_no_gpu = engine == "vllm" and config.resources.gpus == 0
    yield has_no_gpu, keys[2:3], "resources.gpus is 0"


def _of_filter(config: TrialConfig) -> Iterator[Rule]:
    effect = effect_of(config.rollout_filter, config.rollout)
    is_on, is_ranked, is_spread = effect.can_drop, effect.is_ranked, effect.is_spread
    zero, order = ("rollout_filter.include_zero",), ("rollout_filter.type", "rollout_filter.ddof")
    yield not is_on, FILTER_KEYS, OFF
    is_unscored = not is_ranked and config.rollout_filter.include_zero
    yield is_unscored, ("rollout_filter.metric",), OFF
    unused = "it is used by top_p below 1.0 only"
    yield is_on and not effect.is_share, ("rollout_filter.mode",), unused
    yield is_on and not is_spread, order[1:], "rollout_filter.metric is a mean"
    yield is_on and not is_ranked, order, ONLY_ZEROS
    yield not is_spread, zero, "a mean is not a spread, and never 0"
    full = "a share of the sum, best first, is full before the groups that score 0"
    yield is_spread and not effect.looks_at_zeros, zero, full
    never = not (effect.drops_zeros or effect.is_share_of_mass)
    yield is_on and never, ("rollout_filter.empty_stop_steps",), "some group is always kept"


def _of_correction(config: TrialConfig) -> Iterator[Rule]:
    own, rollout = config.rollout_correction, config.rollout
    if rollout.engine != "torch" or config.policy.dtype != "float32" or rollout.ahead:
        return
    bounds = own.model_dump(include={"cap", "band_low", "band_high"})
    far = [name for name, bound in bounds.items() if abs(bound - 1.0) > RATIO_NOISE]
    why = "the engine torch samples with the trainer's own probabilities"
    yield True, _below("rollout_correction", *far), why


def _of_info_gain(config: TrialConfig) -> Iterator[Rule]:
    own = config.attribution
    if own.kind != "info_gain":
        return
    is_off = own.mode == "none"
    keys = _below("attribution", "ig_type", "ig_coef", "gamma")
    alone = ("advantage.singleton",)
    yield is_off, keys, "attribution.mode is none"
    yield not is_off, alone, "attribution.kind info_gain normalises the outcome itself"
    yield own.ig_coef == 0, ("attribution.gamma",), "attribution.ig_coef is 0"
    yield _no_gain_counts(own, config.loss), ("attribution.ig_type",), "attribution.ig_coef is 0"


def _no_gain_counts(own: InfoGainConfig, loss: Loss) -> bool:
    """Return whether gains are computed and then weigh nothing, not in a clip bound either.

    Under joint they are part of what the outcome is normalised over.
    """
    moves_clip = loss.kind == "turn" and loss.turn_clip_beta > 0
    return own.ig_coef == 0 and own.mode not in ("none", "joint") and not moves_clip


def _is_outcome_alone(own: InfoGainConfig, config: TrialConfig) -> bool:
    """Return whether info_gain comes to the outcome of each episode, normalised in its group.

    Without a mode the estimator normalises it: alike, but for an episode alone in its group.
    """
    if own.mode == "none":
        return config.advantage.kind == "grpo" and config.advantage.singleton == 0
    return _no_gain_counts(own, config.loss)


def _of_adca(config: TrialConfig) -> Iterator[Rule]:
    own = config.attribution
    if own.kind != "adca":
        return
    is_constant, is_level = own.alpha_schedule == "constant", own.alpha == own.alpha_min
    judge = _below("attribution.llm", *JudgeConfig.model_fields)
    base = ("attribution.fix_base",)
    verdicts = _below("attribution", "judge", "scheme", "normalize", "scope", "skip", "first_steps")
    steps = _below("attribution", "alpha_min", "alpha_steps")
    yield own.normalize, base, "the z-score divides it out"
    is_allocated = own.scheme == "allocation"
    yield is_allocated, base, "attribution.scheme allocation shares out the outcome"
    yield not own.normalize, ("attribution.scope",), "attribution.normalize is false"
    yield is_constant, steps, "attribution.alpha_schedule is constant"
    yield own.judge != "llm", judge, "attribution.judge is not llm"
    yield not is_constant and is_level, steps[1:], "attribution.alpha_min is alpha"
    is_once = not is_constant and _judged_steps(own, config.budget.steps) == 1
    yield is_once, steps, "turns are judged in the first step only"
    yield not own.has_weight, (*verdicts, *base, *judge), "attribution.alpha is 0"


def _of_shaping(shaping: ShapingConfig) -> Iterator[Rule]:
    schedule = shaping.sepa.schedule
    weights = _below("advantage.shaping", "signal", "scope")
    sepa = _below("advantage.shaping.sepa", "steps", "delay", "gate")
    auto = _below("advantage.shaping.sepa", "ema_decay", "warmup", "var_threshold")
    looks = schedule != "none" or shaping.hicra_alpha > 0
    yield shaping.gtpo_beta == 0, weights, "advantage.shaping.gtpo_beta is 0"
    yield schedule == "none", sepa, "advantage.shaping.sepa.schedule is none"
    yield schedule != "auto", auto, f"advantage.shaping.sepa.schedule is {schedule}"
    yield not looks, ("advantage.shaping.grams",), "nothing looks for planning tokens"


def _of_signals(config: TrialConfig) -> Iterator[Rule]:
    early, collapse = config.early_stop, config.collapse
    no_std = early.reward_std_share is None
    no_gate = early.heldout_success is None
    yield no_std, ("early_stop.reward_std_steps",), "early_stop.reward_std_share is null"
    yield no_gate, ("early_stop.heldout_gates",), "early_stop.heldout_success is null"
    yield collapse.every == 0, ("collapse.prompts",), "collapse.every is 0"
