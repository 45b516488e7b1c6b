"""Match a user's text to a condition or a trial: `kl_loss_coef=0.1`, `.1`, `1e-1@0`.

Values are compared as a sweep file compares them: 0.10 is 0.1, true is not 1.
"""

from collections.abc import Sequence
from typing import Any

import yaml

from rltune.spec.identity import value_text
from rltune.spec.paths import key_path
from rltune.spec.schema.sweep import value_key
from rltune.spec.yamlfile import parse_value
from rltune.types import TrialSpec


def of_condition(specs: Sequence[TrialSpec], given: Any) -> list[TrialSpec]:
    """Return the trials of the condition that is named.

    Args:
        specs: Trials to choose from.
        given: Text: the label of a condition, or its value, with or without the key before it. Or
            the value itself: a number, true, false or None.

    """
    if isinstance(given, str):
        exact = [spec for spec in specs if given in _labels(spec)]
        return exact or [spec for spec in specs if _has_value(spec, _value(given, spec))]
    value = given.item() if hasattr(given, "item") else given  # a number of NumPy's
    return [spec for spec in specs if _has_value(spec, value)]


def of_seed(specs: Sequence[TrialSpec], given: str) -> list[TrialSpec]:
    """Return the trials that `condition@seed` names; none where the text is not of that form."""
    condition, at, seed = given.rpartition("@")
    if not at or not seed.isdecimal():
        return []
    return [spec for spec in of_condition(specs, condition) if spec.seed == int(seed)]


def _labels(spec: TrialSpec) -> tuple[str, str]:
    return spec.condition, value_text(spec.axis_value)


def _value(text: str, spec: TrialSpec) -> Any:
    """Return the value in a text, read as YAML; a key before it must be the axis's."""
    key, equals, rest = text.partition("=")
    is_key = equals and key in (spec.axis_key, key_path(spec.axis_key)[-1])
    shown = rest if is_key else text
    try:
        return parse_value(shown) if shown.strip() else text  # YAML reads nothing as null
    except yaml.YAMLError:
        return text


def _has_value(spec: TrialSpec, value: Any) -> bool:
    return value_key(value) == value_key(spec.axis_value)
