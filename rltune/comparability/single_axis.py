"""S1, S2 and S6 on plain mappings: works on any system's resolved configs, not only on ours."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rltune.comparability.findings import Finding, error
from rltune.spec.identity import MISSING, diff_configs, flatten, same_value
from rltune.spec.keys import VARIANT_SECTIONS, overlaps
from rltune.spec.problems import show
from rltune.spec.rule import RuleError, evaluate_rule
from rltune.spec.schema.sweep import Coupled
from rltune.types import Json


def check_conditions(
    control: Mapping[str, Any],
    others: Mapping[str, Mapping[str, Any]],
    axis_key: str | Sequence[str],
    coupled: Sequence[Coupled] = (),
    *,
    values: Mapping[str, Json] | None = None,
    control_label: str = "control",
) -> tuple[Finding, ...]:
    """Return what moves besides the axis between a control and other conditions (S1, S2).

    Args:
        control: Resolved config of the control.
        others: Label -> resolved config of each other condition.
        axis_key: Dotted key (or the keys of a bundle) that may differ.
        coupled: Keys that may differ too, if they follow their rule.
        values: Label -> axis value for the rules, control included; None reads it at axis_key.
        control_label: Name of the control in messages and in values.

    """
    axis = (axis_key,) if isinstance(axis_key, str) else tuple(axis_key)
    allowed = (*axis, *(item.key for item in coupled))
    found = [
        finding
        for label, config in others.items()
        for finding in _extra_axes(control, config, allowed, label, axis)
    ]
    for label, config in {control_label: control, **others}.items():
        value = flatten(config).get(axis[0]) if values is None else values[label]
        found += _broken_rules(config, coupled, value, label)
    return tuple(found)


def _extra_axes(
    control: Mapping[str, Any],
    config: Mapping[str, Any],
    allowed: Sequence[str],
    label: str,
    axis: Sequence[str],
) -> list[Finding]:
    differences = diff_configs(control, config)
    extra = {
        key: pair
        for key, pair in differences.items()
        if not any(overlaps(key, own) for own in allowed) and not is_of_variant(key, pair, allowed)
    }
    if not extra:
        return []
    named = ", ".join(f"{key} {show(old)} -> {show(new)}" for key, (old, new) in extra.items())
    keys = f"{len(extra)} key{'s' if len(extra) > 1 else ''}"
    message = f"{label!r} differs from the control in {keys} besides the axis "
    message += f"{', '.join(axis)}: {named}."
    remedy = "Give each one value in all conditions, or declare it under axis.coupled with a rule."
    return [error("S1", message, remedy)]


def is_of_variant(key: str, pair: tuple[Any, Any], allowed: Collection[str]) -> bool:
    """Return whether a key exists on one side only because an allowed key chose a variant."""
    tags = {own.rpartition(".")[::2] for own in allowed}
    sections = tuple(f"{section}." for section, tag in tags if tag in VARIANT_SECTIONS.values())
    return MISSING in pair and key.startswith(sections)


def _broken_rules(
    config: Mapping[str, Any], coupled: Sequence[Coupled], value: Json, label: str
) -> list[Finding]:
    flat = flatten(config)
    found = []
    for item in coupled:
        remedy = f"Change the rule {item.rule!r}, or the value."
        try:
            wanted = evaluate_rule(item.rule, value)
        except RuleError as problem:
            message = f"the rule of {item.key} fails in {label!r}: {problem}."
            found.append(error("S2", message, remedy))
            continue
        real = flat.get(item.key, MISSING)
        if not same_value(real, wanted):
            message = f"{item.key} is {show(real)} in {label!r}; its rule gives {show(wanted)}."
            found.append(error("S2", message, remedy))
    return found
