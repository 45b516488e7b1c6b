"""The sweep file and the protocol file as frozen typed trees."""

import math
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from rltune.spec.errors import Violation, refuse
from rltune.spec.keys import nested
from rltune.spec.paths import KeyPath, below, dotted, key_path
from rltune.spec.rule import RuleError, evaluate_rule
from rltune.spec.schema.base import Section, tuple_from_list
from rltune.spec.schema.proposal import Proposed
from rltune.spec.schema.seeds import Seeds, refuse_repeats
from rltune.spec.shortforms import long_forms
from rltune.types import Json

LAPTOP = "laptop"  # the profile of a sweep file that names none
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
DottedKey = Annotated[
    str,
    Field(pattern=r'^[A-Za-z_]\w*(\.(\w+|"([^"\\]|\\.)*"))*$'),
    AfterValidator(lambda key: dotted(key_path(key))),  # one spelling: no needless quotes
]


def _refuse_bad_rule(rule: str) -> str:
    try:
        evaluate_rule(rule, 1)
    except RuleError as error:
        if "no value for" not in str(error):  # a rule over text may have no value for 1
            action = "Use value, literals, comparison, and/or/not, + - * / // % and if/else."
            refuse([Violation("", f"{rule!r} cannot be a rule: {error}.", action)])
    return rule


def _refuse_blank(text: str) -> str:
    if not text.strip():
        refuse(
            [Violation("", f"{text!r} is blank.", "Write a reason, for the reader of the figure.")]
        )
    return text


def _refuse_hard_rules(accept: dict[str, str]) -> dict[str, str]:
    action = "Only warnings can: S8, one of its findings such as S8.k1_loss, or S6.proportional."
    refuse(
        [
            Violation(rule, f"{rule!r} cannot be accepted.", action)
            for rule in accept
            if rule.partition(".")[0] != "S8" and not rule.startswith("S6.")
        ]
    )
    return accept


Reason = Annotated[str, AfterValidator(_refuse_blank)]


def is_scalar(value: object) -> bool:
    """Return whether a value is one finite number, text, true, false or null."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) <= sys.float_info.max
    return value is None or isinstance(value, str)


def _require_scalar(value: Json) -> Json:
    if not is_scalar(value):
        refuse(
            [Violation("", f"{value!r} is not one value.", "Give a number, text or true/false.")]
        )
    return value


def _values_violations(values: Json) -> list[Violation]:
    if not isinstance(values, list | tuple | dict) or not values:
        action = "Give a list of values, or a mapping of name -> value or bundle."
        return [Violation("", f"{values!r} holds no values.", action)]
    if isinstance(values, dict):
        named = [(str(name), item) for name, item in values.items()]
        bad = [(name, item) for name, item in named if not (is_scalar(item) or _is_bundle(item))]
        action = "Give one value, or a bundle of keys under axis.key."
    else:
        bad = [(str(i), item) for i, item in enumerate(values) if not is_scalar(item)]
        action = "Give a finite number, text or true/false; for a bundle of keys, name it."
    what = "{!r} is not an axis value."
    found = [Violation(below((name,)), what.format(item), action) for name, item in bad]
    seen: set[object] = set()
    for value in values:
        key = value_key(value)
        if is_scalar(value) and key in seen:
            found.append(Violation("", f"{value!r} is given twice.", "Remove the duplicate."))
        seen.add(key)
    return found


def _is_bundle(item: object) -> bool:
    return isinstance(item, dict) and bool(item)


def _nesting_violations(at: str, tree: dict[str, Any], inside: KeyPath = ()) -> list[Violation]:
    """Return the key of a tree that is given twice, if there is one."""
    try:
        nested(tree, inside)
    except ValueError as error:
        return [
            Violation(at, f"{error} (with dots, nested, or in a short form).", "Keep one of them.")
        ]
    return []


def _refuse_double_keys(tree: dict[str, Any]) -> dict[str, Any]:
    violations = _nesting_violations("", long_forms(tree))
    if "seed" in tree:
        what = "The seed cannot be held; it is the unit of replication."
        violations.append(Violation("seed", what, "List seeds under seeds."))
    refuse(violations)
    return tree


def _require_values(values: Json) -> Json:
    refuse(_values_violations(values))
    return tuple(values) if isinstance(values, list) else values  # type: ignore[return-value]


def _require_expectations(expect: Json) -> Json:
    if not isinstance(expect, dict):
        refuse([Violation("", f"{expect!r} is not a mapping.", "Give axis value -> text.")])
    else:
        refuse(
            [
                Violation(str(value), f"{text!r} is not text.", "Write the prediction in quotes.")
                for value, text in expect.items()
                if not isinstance(text, str)
            ]
        )
    return expect


_SCALAR_SCHEMA: dict[str, Any] = {"type": ["number", "string", "boolean", "null"]}
_VALUES_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {"type": "array", "items": _SCALAR_SCHEMA, "minItems": 1, "uniqueItems": True},
        {
            "type": "object",
            "additionalProperties": {"anyOf": [_SCALAR_SCHEMA, {"type": "object"}]},
            "minProperties": 1,
        },
    ]
}
Scalar = Annotated[Json, PlainValidator(_require_scalar), WithJsonSchema(_SCALAR_SCHEMA)]
Values = Annotated[
    tuple[Json, ...] | dict[Any, Any],
    PlainValidator(_require_values),
    WithJsonSchema(_VALUES_SCHEMA),
]


class Coupled(Section):
    """A key that must move with the axis because it is the same switch."""

    key: DottedKey = Field(description="Dotted config key that moves with the axis.")
    rule: Annotated[str, AfterValidator(_refuse_bad_rule)] = Field(
        description="Expression over `value` (the axis value) that gives this key's value."
    )
    why: Reason = Field(description="Why it is the same switch, in a sentence.")


class Axis(Section):
    """The one knob that differs between the conditions of a sweep."""

    key: DottedKey = Field(description="Dotted config key; a section when the values are bundles.")
    values: Values = Field(
        description="A list of values, or name -> value or bundle of keys under `key`."
    )
    control: Scalar = Field(description="The value (or name) that the others are compared with.")
    coupled: Annotated[tuple[Coupled, ...], BeforeValidator(tuple_from_list)] = Field(
        (), description="Keys that move with the axis, each with a rule and a reason."
    )
    why: Reason | None = Field(
        None,
        description="Why several keys are one intervention, in a sentence; for values that set "
        "more than one key.",
    )
    expect: Annotated[
        dict[Any, str],
        PlainValidator(_require_expectations),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
    ] = Field(
        default_factory=dict, description="Value -> predicted effect, recorded before the run."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        values = self.values if isinstance(self.values, dict) else {}
        inside = key_path(self.key)
        refuse(
            [
                found
                for name, item in values.items()
                if isinstance(item, dict)
                for found in _nesting_violations(f"values.{below((name,))}", item, inside)
            ]
        )
        return self


class Metric(Section):
    """What decides which condition did better."""

    name: Annotated[str, Field(pattern=r"^heldout/([A-Za-z_]\w*/)?[A-Za-z_]\w*$")] = Field(
        "heldout/success_rate",
        description="Metric of the held-out gate: heldout/success_rate, heldout/reward_mean, "
        "heldout/turns, or a measure that the env or the reward has, such as heldout/em; "
        "with env.eval also heldout/SET/em and heldout/macro/em.",
    )
    mode: Literal["max", "min"] = Field("max", description="Whether more or less is better.")


class Profiles(Section):
    """The hardware-and-scale halves that this sweep may be run with."""

    default: Name = Field(description="Profile used without --profile.")
    allowed: Annotated[
        tuple[Name, ...], AfterValidator(refuse_repeats), BeforeValidator(tuple_from_list)
    ] = Field(description="Profiles that --profile may name.")


class SweepSpec(Proposed):
    """One sweep file."""

    name: Name = Field(description="Name of the sweep: lower case, digits, - and _; names folders.")
    title: Text = Field("", description="Title on figures; the name where there is none.")
    question: Text = Field(description="The question that the sweep answers, in a sentence.")
    base: Name = Field(description="Base config: a file name in configs/, without .yaml.")
    protocol: Name | None = Field(
        None, description="Rules shared with other sweeps: a file in configs/protocols/."
    )
    hold: Annotated[dict[str, Any], AfterValidator(_refuse_double_keys)] = Field(
        default_factory=dict, description="Keys with a fixed value in every condition."
    )
    axis: Axis = Field(description="The one knob that differs between the conditions.")
    seeds: Seeds = Field(
        description="Seeds, the same ones for every condition; or `{start: 3, max: 12, until: "
        "decided, effect: 0.05}`, which adds seeds until each condition is decided."
    )
    metric: Metric = Field(default_factory=lambda: Metric(), description="What decides.")
    profiles: Profiles = Field(
        default_factory=lambda: Profiles(default=LAPTOP, allowed=(LAPTOP,)),
        description="Hardware-and-scale halves allowed here.",
    )
    accept: Annotated[dict[str, Reason], AfterValidator(_refuse_hard_rules)] = Field(
        default_factory=dict,
        description="One warning (`S8.k1_loss`, `S6.proportional`) -> the written reason for "
        "accepting it; S8 where only one kind of it is found.",
    )

    @model_validator(mode="before")
    @classmethod
    def _name_as_title(cls, data: dict[str, Any]) -> dict[str, Any]:
        name = data.get("name")
        return {"title": name, **data} if isinstance(name, str) else data


class ProtocolSpec(Section):
    """Rules that several sweeps share: everything agrees but the free keys."""

    name: Name = Field(description="Name of the protocol, equal to its file name.")
    title: Text = Field(description="What the sweeps of this protocol show together.")
    free: dict[DottedKey, Reason] = Field(
        description="Keys that may differ between the sweeps, each with the reason."
    )


def sweep_json_schema() -> dict[str, Any]:
    """Return the JSON schema of a sweep file, for completion and checks in editors."""
    schema = SweepSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def value_key(value: Any) -> tuple[str, Any]:
    """Return what makes two axis values one value: 0 and 0.0 are, true and 1 are not."""
    if isinstance(value, bool) or value is None:
        return "flag", value
    if isinstance(value, int | float):
        return "number", "nan" if isinstance(value, float) and math.isnan(value) else value
    if isinstance(value, Mapping):
        return "bundle", tuple(sorted((key, value_key(item)) for key, item in value.items()))
    return "text", str(value)
