"""S8, sizes that move with a knob: updates, weights of terms, adapters, clip bounds.

The other confounders are in `rltune.comparability.confounders`, which calls this.
"""

from collections.abc import Iterator, Mapping, Sequence

from rltune.comparability.findings import Finding, listed, warning
from rltune.comparability.inactive_keys import inactive_keys
from rltune.comparability.knobs import (
    filter_is_on,
    rollouts_per_step,
    updates_per_step,
    warmup_steps,
)
from rltune.spec.estimators import WHITENED_KINDS
from rltune.spec.keys import overlaps
from rltune.spec.schema.trial import TrialConfig

Configs = Mapping[str, TrialConfig]
"""Condition label -> config."""

CONSTANT_NORM = "seq-mean-token-sum-norm"
"""The `loss.aggregation` that divides by constants of the config."""

SIZES = (
    *("advantage", "attribution", "rollout_filter", "reward", "env.format_penalty"),
    "loss.aggregation",
)
"""Sections and keys that may change how large the policy loss of a step is.

A filter takes out groups of equal rewards, whose advantages are 0 within groups. An aggregation
divides the policy loss by episodes where the other terms are divided by tokens.
"""

SCALED = ("advantage.shaping", "attribution", "rollout_filter.loss_scaling", "loss.aggregation")
"""Those that come after an estimator's own normalisation."""

BOUNDED = {
    "ppo": "the ratio of a token, beyond which it has no gradient",
    "cispo": "the weight of a token, which keeps its gradient",
    "gspo": "the mean ratio of an episode",
    "turn": "the mean ratio of a turn",
}
"""`loss.kind` -> what `loss.clip_low` and `loss.clip_high` bound."""


def scale_confounders(configs: Configs, moving: Sequence[str]) -> Iterator[Finding]:
    """Yield the S8 warnings about sizes."""
    yield from _critic_warmup(configs)
    yield from _update_count(configs)
    yield from _staleness(configs, moving)
    yield from _term_weights(configs, moving)
    yield from _adapter_scale(configs, moving)
    yield from _clip_meaning(configs, moving)
    yield from _batch_mates(configs)
    yield from _batch_whitening(configs)


def _moves(key: str, moving: Sequence[str]) -> bool:
    return any(overlaps(key, other) for other in moving)


def _counts(counts: Mapping[str, object]) -> str:
    return ", ".join(f"{label}: {count}" for label, count in counts.items())


def _critic_warmup(configs: Configs) -> Iterator[Finding]:
    silent = {label: warmup_steps(config) for label, config in configs.items()}
    trained = {label: configs[label].budget.steps - n for label, n in silent.items()}
    unmoved = [label for label, count in trained.items() if count == 0]
    if unmoved:
        yield warning(
            "S8.critic_warmup",
            f"The policy is never updated in {listed(unmoved)}: critic.warmup_steps covers all "
            f"{configs[unmoved[0]].budget.steps} training steps.",
            "Set critic.warmup_steps below budget.steps.",
        )
    elif len(set(silent.values())) > 1:
        yield warning(
            "S8.critic_warmup",
            "The policy is updated in a different number of training steps in each condition "
            f"({_counts(trained)}): while a critic warms up, the policy stands still.",
            "Set critic.warmup_steps: 0; or, where the warm-up is the intervention, accept this "
            "with that reason.",
        )


def _update_count(configs: Configs) -> Iterator[Finding]:
    counts = {label: updates_per_step(config) for label, config in configs.items()}
    if len(set(counts.values())) > 1:
        yield warning(
            "S8.update_count",
            f"Optimiser steps per training step differ between conditions ({_counts(counts)}).",
            "Move optim.mini_batch_size or optim.epochs along as a coupled key.",
        )


def _staleness(configs: Configs, moving: Sequence[str]) -> Iterator[Finding]:
    """Yield where conditions are off-policy by different amounts, or correct it differently."""
    counts = {label: updates_per_step(config) for label, config in configs.items()}
    ahead = {label: config.rollout.ahead for label, config in configs.items()}
    if len(set(ahead.values())) > 1:
        yield warning(
            "S8.staleness",
            f"rollout.ahead is not the same in all conditions ({_counts(ahead)}): with 1 a step "
            "learns from samples of the policy before the last step, which rollout_correction "
            "weighs within its bounds, and does not make new.",
            "Give all conditions one rollout.ahead; or, where the age of samples is the "
            "intervention, accept this with that reason.",
        )
    if len(set(counts.values())) > 1:
        behind = {label: count * (1 + ahead[label]) - 1 for label, count in counts.items()}
        yield warning(
            "S8.staleness",
            "The policy that learns from the last mini-batch of a step is a different number of "
            f"updates away from the one that sampled it ({_counts(behind)}): ratios, and what is "
            "clipped, differ with it.",
            "Give all conditions as many optimiser steps a batch; or, where the reuse of samples "
            "is the intervention, accept this with that reason.",
        )
    plain = [label for label, config in configs.items() if config.loss.kind == "reinforce"]
    is_stale = any(counts[label] > 1 for label in plain)
    if is_stale and _moves("loss.kind", moving) and len(plain) < len(configs):
        yield warning(
            "S8.staleness",
            f"loss.kind reinforce in {listed(plain)} has no ratio: from the second optimiser step "
            "of a batch on it learns uncorrected from an older policy's samples, which the other "
            "losses correct.",
            "Make one optimiser step a batch: optim.epochs: 1, and optim.mini_batch_size as large "
            "as the rollouts of a step.",
        )


def _term_weights(configs: Configs, moving: Sequence[str]) -> Iterator[Finding]:
    keys = _resizing(configs, moving)
    terms = {
        "loss.entropy_coeff": any(config.loss.entropy_coeff > 0 for config in configs.values()),
        "loss.kl_loss_coef": any(has_kl(config) for config in configs.values()),
    }
    fixed = [key for key, is_on in terms.items() if is_on and not _moves(key, moving)]
    if keys and fixed:
        yield warning(
            "S8.term_weights",
            f"{', '.join(keys)} may change how large the policy loss of a step is, which the terms "
            f"of {' and '.join(fixed)} do not follow: their weight against the reward differs "
            "between conditions.",
            f"Set {' and '.join(f'{key}: 0.0' for key in fixed)}, or couple them with a rule that "
            "keeps their weight.",
        )


def has_kl(config: TrialConfig) -> bool:
    """Return whether a KL to the starting policy is a term of the loss."""
    return config.loss.use_kl_loss and config.loss.kl_loss_coef > 0


def _resizing(configs: Configs, moving: Sequence[str]) -> list[str]:
    """Return the moving keys after which the policy loss may have another size.

    Estimators that all whiten over the batch give advantages of one variance; those that divide by
    the spread or the mean of a group do not feel the scale of a reward.
    """
    keys = [key for key in moving if any(overlaps(key, size) for size in SIZES)]
    if all(config.advantage.kind in WHITENED_KINDS for config in configs.values()):
        return [key for key in keys if any(overlaps(key, scaled) for scaled in SCALED)]
    if any(_feels_scale(config) for config in configs.values()):
        return keys
    return [key for key in keys if not key.startswith(("reward", "env."))]


def _feels_scale(config: TrialConfig) -> bool:
    """Return whether twice the rewards are twice the advantages, as far as is known."""
    own = config.advantage
    if own.kind == "grpo":
        return not own.normalize_std
    return own.kind in ("grpo_center", "rloo", "custom")


def _adapter_scale(configs: Configs, moving: Sequence[str]) -> Iterator[Finding]:
    scales = {
        label: config.policy.lora.alpha / config.policy.lora.rank
        for label, config in configs.items()
        if config.policy.lora.rank > 0
    }
    if _moves("policy.lora.rank", moving) and len(set(scales.values())) > 1:
        named = _counts({label: f"{scale:g}" for label, scale in scales.items()})
        yield warning(
            "S8.lora_scale",
            "policy.lora.rank moves alpha / rank, by which the output of an adapter is scaled "
            f"({named}), and with it the effective learning rate.",
            "Move policy.lora.alpha along as a coupled key, so that alpha / rank stays.",
        )


def _clip_meaning(configs: Configs, moving: Sequence[str]) -> Iterator[Finding]:
    """Yield equal clip bounds under losses that bound different things, where a bound can bite."""
    if not _moves("loss.kind", moving):
        return
    by_bounds: dict[tuple[float, float], dict[str, None]] = {}
    for config in configs.values():
        loss = config.loss
        if loss.kind != "reinforce" and "loss.clip_high" not in inactive_keys(config):
            by_bounds.setdefault((loss.clip_low, loss.clip_high), {})[loss.kind] = None
    for (low, high), kinds in by_bounds.items():
        if len(kinds) > 1:
            meanings = "; ".join(f"{kind}: {BOUNDED[kind]}" for kind in kinds)
            yield warning(
                "S8.clip_meaning",
                f"loss.clip_low {low:g} and loss.clip_high {high:g} bound something else in each "
                f"loss ({meanings}): what is tight for one is loose for another.",
                "Give each loss.kind bounds of its own, as a bundle: the literature has 0.2 and "
                "0.28 for ppo, 3e-3 and 4e-3 for turn, 3e-4 and 4e-4 for gspo.",
            )


def _batch_mates(configs: Configs) -> Iterator[Finding]:
    drawn = {
        label: config.optim.minibatch_by
        for label, config in configs.items()
        if "optim.minibatch_by" not in inactive_keys(config)
    }
    if len(set(drawn.values())) > 1:
        yield warning(
            "S8.batch_mates",
            f"optim.minibatch_by is not the same in all conditions ({_counts(drawn)}): by group an "
            "optimiser step sees fewer prompts with all of their rollouts, by row parts of more, "
            "and its gradient has another variance.",
            "Give all conditions one optim.minibatch_by; or, where the drawing is the "
            "intervention, accept this with that reason.",
        )
    modes = {
        label: config.loss.aggregation
        for label, config in configs.items()
        if filter_is_on(config)
        and config.rollout_filter.on_drop == "mask"
        and config.optim.mini_batch_size < rollouts_per_step(config)
        and config.loss.aggregation != CONSTANT_NORM
    }
    if modes:
        yield warning(
            "S8.batch_mates",
            f"The filter in {listed(list(modes))} masks rows, and loss.aggregation "
            f"{', '.join(sorted(set(modes.values())))} divides by those that are left in a "
            "mini-batch: how much a token weighs depends on which rows the shuffle put beside it.",
            f"Set loss.aggregation: {CONSTANT_NORM}, or optim.mini_batch_size to all rollouts of "
            "a step.",
        )


def _batch_whitening(configs: Configs) -> Iterator[Finding]:
    causes = {
        label: _over_batch(config) for label, config in configs.items() if filter_is_on(config)
    }
    labels = [label for label, cause in causes.items() if cause]
    if labels:
        named = ", ".join(dict.fromkeys(causes[label] for label in labels))
        yield warning(
            "S8.batch_whitening",
            f"{named} in {listed(labels)} takes mean and spread over the tokens of the batch, and "
            "the filter decides which groups are in it: dropping one changes the credit of all "
            "others. A group of equal rewards is not without credit there.",
            "Choose an estimator within groups (advantage.kind grpo, grpo_center, rloo or maxrl) "
            "and advantage.shaping.scope: completion, or switch the filter off.",
        )


def _over_batch(config: TrialConfig) -> str:
    """Return what makes the credit of a token depend on all groups of the batch; empty if none."""
    if config.advantage.kind in WHITENED_KINDS:
        return f"advantage.kind {config.advantage.kind}"
    shaping = config.advantage.shaping
    is_shaped = shaping.gtpo_beta > 0 and shaping.scope == "batch"
    return "advantage.shaping.scope batch" if is_shaped else ""
