"""The values of an axis, and the config keys that each of them sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.errors import Problem
from rltune.spec.identity import value_text
from rltune.spec.paths import key_path
from rltune.spec.resolve import Layer, lines_below
from rltune.spec.rule import RuleError, evaluate_rule
from rltune.spec.schema.sweep import Axis, value_key
from rltune.spec.shortforms import config_tree
from rltune.spec.yamlfile import YamlFile
from rltune.types import Json


@dataclass(frozen=True, slots=True)
class Condition:
    """One value of the axis, resolved."""

    label: str  # `kl_loss_coef=0.01`
    value: Json  # the axis value; the name for a bundle
    is_control: bool  # whether the others are compared with it
    config: Mapping[str, Any]  # the full resolved trial config as plain values, with seed 0
    expected_delta: str = ""  # the prediction of the sweep file, or empty


@dataclass(frozen=True, slots=True)
class AxisValue:
    """One value of an axis before resolution."""

    name: str  # as written: `0.01`, `nofilter`
    value: Json  # the scalar, or the bundle's name
    label: str  # `kl_loss_coef=0.01`
    data: Mapping[str, Any]  # the nested config keys that it sets
    position: str  # its key path below `axis.values` in the file
    is_control: bool  # whether axis.control names it
    expected: str  # its prediction, or empty

    @property
    def key(self) -> tuple[str, Any]:
        """Return what makes two values one."""
        return value_key(self.value)


def axis_values(axis: Axis) -> tuple[AxisValue, ...]:
    """Return the values of an axis in the order of the file."""
    if isinstance(axis.values, Mapping):
        named = [(name, item, str(name)) for name, item in axis.values.items()]
    else:
        named = [(item, item, str(i)) for i, item in enumerate(axis.values)]
    expected = {value_key(value): text for value, text in axis.expect.items()}
    short = key_path(axis.key)[-1]
    return tuple(
        AxisValue(
            name=value_text(name),
            value=name,
            label=f"{short}={value_text(name)}",
            data=config_tree({axis.key: item}),
            position=position,
            is_control=value_key(name) == value_key(axis.control),
            expected=expected.get(value_key(name), ""),
        )
        for name, item, position in named
    )


def condition_layers(
    file: YamlFile, axis: Axis, value: AxisValue, problems: list[Problem]
) -> list[Layer]:
    """Return the layers of one condition: the axis value, then the coupled keys."""
    target = key_path(axis.key)
    lines = lines_below(file, ("axis", "values", value.position), target)
    layers = [Layer(value.data, str(file.path), lines, f"axis.values.{value.position}: ")]
    for i, coupled in enumerate(axis.coupled):
        path = ("axis", "coupled", str(i), "rule")
        where = f"{file.where(path)}: {'.'.join(path)}"
        try:
            result = evaluate_rule(coupled.rule, value.value)
        except RuleError as error:
            what = f"{coupled.rule!r} fails for axis value {value.name}: {error}."
            problems.append(Problem(where, what, action="Give a rule that holds for every value."))
            continue
        at = {key_path(coupled.key): file.lines.get(path, 1)}
        shown = f"axis.coupled.{i}: "
        layers.append(Layer(config_tree({coupled.key: result}), str(file.path), at, shown))
    return layers
