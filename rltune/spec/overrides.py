"""`--set key=value`: the last layer, which may not change what the sweep holds or varies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import yaml

from rltune.errors import Problem
from rltune.spec.conditions import axis_values
from rltune.spec.identity import flatten
from rltune.spec.keys import (
    VARIANT_SECTIONS,
    config_keys,
    did_you_mean,
    is_config_key,
    kept_keys,
    overlaps,
)
from rltune.spec.resolve import Layer
from rltune.spec.schema.sweep import SweepSpec
from rltune.spec.shortforms import config_tree
from rltune.spec.yamlfile import DuplicateKeyError, parse_value


def override_layers(
    overrides: Sequence[str], spec: SweepSpec | None, problems: list[Problem]
) -> list[Layer]:
    """Return one layer for each `key=value` text; adds refused ones to problems.

    Layers that choose a variant come first, so that no key is lost to one that follows it.
    """
    guarded = _guarded(spec) if spec is not None else {}
    layers = []
    for text in overrides:
        layer = _layer(text)
        problem = layer if isinstance(layer, Problem) else _refusal(layer, guarded)
        if problem is not None:
            problems.append(problem)
        elif isinstance(layer, Layer):
            layers.append(layer)
    return [*_variants_chosen(layers), *map(_without_variants, layers)]


def _variants_chosen(layers: Sequence[Layer]) -> list[Layer]:
    """Return a layer for each section whose variant is chosen; the last choice counts."""
    chosen = {
        section: Layer({section: {tag: layer.data[section][tag]}}, layer.origin)
        for layer in layers
        for section, tag in VARIANT_SECTIONS.items()
        if _chooses(layer, section, tag)
    }
    return list(chosen.values())


def _without_variants(layer: Layer) -> Layer:
    """Return a layer without its choices of variants."""
    rest = {
        section: {key: value for key, value in layer.data[section].items() if key != tag}
        for section, tag in VARIANT_SECTIONS.items()
        if _chooses(layer, section, tag)
    }
    return replace(layer, data={**layer.data, **rest})


def _chooses(layer: Layer, section: str, tag: str) -> bool:
    held = layer.data.get(section)
    return isinstance(held, Mapping) and tag in held


def _layer(text: str) -> Layer | Problem:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        return Problem(_shown(text), "is not of the form key=value.", "Example: budget.steps=20.")
    if not is_config_key(key):
        hint = did_you_mean(key, config_keys())
        return Problem(_shown(text), f"{key!r} is not a config key.", action=hint)
    try:
        parsed = parse_value(value)
    except DuplicateKeyError as error:
        return Problem(_shown(text), f"{error.problem}.", action="Keep one of them.")
    except (yaml.YAMLError, RecursionError):
        what = f"{_shown(text).partition('=')[2]!r} is not a YAML value."
        return Problem(_shown(text), what, action="Put it in quotes.")
    try:
        return Layer(config_tree({key: parsed}), _shown(text))
    except ValueError as error:
        return Problem(_shown(text), f"{error} (with dots and nested).", action="Keep one of them.")


def _shown(text: str) -> str:
    """Return an override as messages name it, without a value that may be the key of a judge."""
    key, equals, value = text.partition("=")
    is_secret = key.startswith("attribution.llm") and not value.replace(".", "").isdecimal()
    return f"--set {key}{equals}***" if is_secret else f"--set {text}"


def _guarded(spec: SweepSpec) -> dict[str, str]:
    """Return protected dotted key -> why it is protected.

    A held length (`budget`) is not: all conditions have it in common, and the question stays.
    """
    held = (key for key in flatten(config_tree(spec.hold)) if not overlaps(key, "budget"))
    guarded = dict.fromkeys(held, "held by this sweep")
    guarded |= {coupled.key: "coupled with the axis" for coupled in spec.axis.coupled}
    for value in axis_values(spec.axis):
        guarded |= dict.fromkeys(flatten(value.data), "the axis of this sweep")
    return guarded | {"seed": "set by the seeds of this sweep"}


def _refusal(layer: Layer, guarded: dict[str, str]) -> Problem | None:
    keys = flatten(layer.data)
    for other, why in guarded.items():
        if any(overlaps(key, other) or _replaces(key, keys[key], other) for key in keys):
            action = "Use --seeds." if other == "seed" else "Edit the sweep file instead."
            return Problem(layer.origin, f"{other!r} is {why}.", action=action)
    return None


def _replaces(key: str, value: object, other: str) -> bool:
    """Return whether a key chooses a variant of a section, which may lose another key by that."""
    section, _, name = key.partition(".")
    head, _, tail = other.partition(".")
    if head != section or VARIANT_SECTIONS.get(section) != name:
        return False
    return tail.partition(".")[0] not in kept_keys(section, value)
