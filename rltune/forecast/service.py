"""What a trial will ask of a training service: at most, and by an earlier run."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rltune.comparability.knobs import rollouts_per_step
from rltune.forecast.pass_memory import sampled_tokens
from rltune.spec.schema.trial import TrialConfig
from rltune.store.prices import Price
from rltune.store.service_usage import ServiceUsage
from rltune.store.speed import speed_key

_OF_A_SYNC = 4  # calls: a snapshot, a sampled probe, its scores, a saved state
_TOKENS = ("prompt_tokens", "sampled_tokens", "forward_tokens", "trained_tokens")


def service_need(config: TrialConfig) -> ServiceUsage | None:
    """Return the most that a trial asks of a service; None where its turns are not known.

    With E episodes a step, H held-out tasks, K turns, contexts of C tokens, S sampled tokens of an
    episode, P passes over a batch, and R = 1 with a reference:

        prompts    (E + H) K C + E C R + C        sampled   (E + H) S
        forward    E C (1 + P) + C                trained   E C P

    H counts in steps with a gate, and once before the first; C alone is the probe after an update.
    """
    turns = getattr(config.env, "max_turns", None)
    if turns is None:
        return None
    steps, context, passes = config.budget.steps, config.rollout.max_context, config.optim.epochs
    episodes, sampled = rollouts_per_step(config), sampled_tokens(config)
    played = steps * episodes + (1 + math.ceil(steps / config.gate.every)) * config.gate.tasks
    scored = steps * episodes * context
    syncs, reference = steps + 1, int(config.loss.use_kl_loss)
    calls = episodes * (1 + reference + 2 * passes) + passes * episodes
    return ServiceUsage(
        requests=played * turns + steps * calls + syncs * _OF_A_SYNC + 1 + reference,
        prompt_tokens=played * turns * context + reference * scored + syncs * context,
        sampled_tokens=played * sampled + syncs,
        forward_tokens=(1 + passes) * scored + syncs * context,
        trained_tokens=passes * scored,
    )


def priced(usage: ServiceUsage, price: Price | None) -> ServiceUsage:
    """Return calls and tokens with what they will cost; without prices as they are."""
    if price is None:
        return usage
    tokens = {name: getattr(usage, name) for name in _TOKENS}
    return replace(usage, paid={price.currency: price.of(**tokens)})


def usage_of_steps(
    trials: Iterable[tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]],
) -> dict[str, tuple[ServiceUsage, int]]:
    """Return speed key -> what trials asked of a service, by their metrics, and their steps.

    A trial is its config and its rows of metrics.jsonl; those that asked for nothing have no key.
    """
    sums: dict[str, tuple[ServiceUsage, int]] = {}
    for config, rows in trials:
        own = [row for row in rows if row.get("tinker/requests")]
        steps = sum(row["step"] > 0 for row in own)
        if steps:
            key = speed_key(config)
            before, count = sums.get(key, (ServiceUsage(), 0))
            sums[key] = sum(map(_of_row, own), before), count + steps
    return sums


def scaled(usage: ServiceUsage, factor: float) -> ServiceUsage:
    """Return so much of a usage, without its cost."""
    return _usage({name: round(getattr(usage, name) * factor) for name in ("requests", *_TOKENS)})


def _of_row(row: Mapping[str, Any]) -> ServiceUsage:
    return _usage({name: int(row.get(f"tinker/{name}", 0)) for name in ("requests", *_TOKENS)})


def _usage(counts: Mapping[str, Any]) -> ServiceUsage:
    return ServiceUsage(**counts)
