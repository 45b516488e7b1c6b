"""A new trial config from a recorded one and overrides."""

from collections.abc import Mapping, Sequence
from typing import Any

from rltune.errors import Problem, SpecError
from rltune.spec.identity import (
    SLUG_LENGTH,
    canonical_json,
    config_hash,
    flatten,
    safe_slug,
    trial_id,
    value_text,
)
from rltune.spec.overrides import override_layers
from rltune.spec.paths import key_path
from rltune.spec.resolve import Layer, merge_layers, resolve_config
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.unread import without_unread
from rltune.types import TrialSpec


def derive_config(
    recorded: Mapping[str, Any], *, source: str, overrides: Sequence[str], seed: int | None
) -> dict[str, Any]:
    """Return a recorded config with overrides, validated as a sweep's is.

    Nothing is protected: there is no sweep whose comparison could break.

    Args:
        recorded: Content of a trial's config.yaml.
        source: Its path, for messages.
        overrides: `key=value` texts, in order.
        seed: Seed instead of the recorded one; None keeps it.

    Raises:
        SpecError: Carries every problem.

    """
    problems: list[Problem] = []
    given = override_layers(overrides, None, problems)
    layers = [*without_unread([Layer(recorded, source)], given), *given]
    if seed is not None:
        layers.append(Layer({"seed": seed}, f"--seed {seed}"))
    config = resolve_config(merge_layers(layers, problems), layers, problems)
    if problems or config is None:
        raise SpecError(list(dict.fromkeys(problems)))
    return config


def recorded_config(recorded: Mapping[str, Any], *, source: str) -> TrialConfig:
    """Return a recorded config as it runs now.

    Raises:
        SpecError: This version of rltune does not know a key or a value of it.

    """
    config = derive_config(recorded, source=source, overrides=(), seed=None)
    return TrialConfig.model_validate_json(canonical_json(config))


def derive_spec(
    parent: TrialSpec, config: Mapping[str, Any], *, start: str, step: int | None
) -> TrialSpec:
    """Return the spec of a child: no control, and identified by its config and what it starts from.

    Args:
        parent: The trial that it is made from.
        config: Its own config.
        start: Digest of the weights that it starts from; empty: those that the config names.
        step: Training step of the checkpoint that holds them; for its name only.

    """
    value = flatten(config).get(parent.axis_key, parent.axis_value)
    moved = value != flatten(parent.config).get(parent.axis_key, parent.axis_value)
    short = key_path(parent.axis_key)[-1]
    condition = f"{short}={value_text(value)}" if moved else parent.condition
    seed = int(config["seed"])
    tail = f"-s{seed}" + (f"-from{step}" if step is not None else "")
    slug = safe_slug(condition)[: SLUG_LENGTH - len(tail)] + tail
    digest = config_hash(config, start=start)
    return TrialSpec(
        trial_id=trial_id(slug, digest),
        sweep=parent.sweep,
        axis_key=parent.axis_key,
        condition=condition,
        axis_value=value if moved else parent.axis_value,
        is_control=False,
        seed=seed,
        config=config,
        config_hash=digest,
    )
