"""Checks of an axis by its names alone, before anything is resolved."""

from collections.abc import Sequence

from rltune.errors import Problem
from rltune.spec.conditions import AxisValue, axis_values
from rltune.spec.identity import flatten
from rltune.spec.keys import config_keys, did_you_mean, is_config_key, overlaps
from rltune.spec.problems import Locate
from rltune.spec.schema.sweep import SweepSpec, value_key
from rltune.spec.shortforms import config_tree

BACKEND = "trainer.backend"


def axis_leaf_keys(spec: SweepSpec) -> tuple[str, ...]:
    """Return the dotted leaf keys that the axis sets, each once, in order of appearance."""
    keys = [key for value in axis_values(spec.axis) for key in flatten(value.data)]
    return tuple(dict.fromkeys(keys))


def unknown_key(key: str, where: str) -> list[Problem]:
    """Return the problem of a dotted key that no trial config has."""
    if is_config_key(key):
        return []
    return [
        Problem(where, f"{key!r} is not a config key.", action=did_you_mean(key, config_keys()))
    ]


def check_axis(spec: SweepSpec, locate: Locate, problems: list[Problem]) -> bool:
    """Return whether axis and coupled keys are valid by name; adds what is wrong to problems."""
    before = len(problems)
    axis = spec.axis
    if axis.key == "seed":
        what = "'seed' is the unit of replication, not a knob."
        problems.append(Problem(locate(("axis", "key")), what, action="List seeds under seeds."))
    if BACKEND in (*axis_leaf_keys(spec), *(coupled.key for coupled in axis.coupled)):
        what = f"{BACKEND!r} is where trials are trained, not a knob: no two backends are equal."
        action = "Set it for all conditions, and compare backends by a sweep for each."
        problems.append(Problem(locate(("axis", "key")), what, action=action))
    problems.extend(unknown_key(axis.key, locate(("axis", "key"))))
    if not config_keys().get(axis.key, True) and axis.key in axis_leaf_keys(spec):
        what = f"{axis.key!r} is a section; one value cannot replace it."
        action = "Name a key inside it, or give bundles of its keys."
        problems.append(Problem(locate(("axis", "key")), what, action=action))
    problems.extend(_unexplained_bundle(spec, locate))
    keys = axis_leaf_keys(spec)
    held = tuple(flatten(config_tree(spec.hold)))
    for i, coupled in enumerate(axis.coupled):
        where = locate(("axis", "coupled", str(i), "key"))
        problems.extend(unknown_key(coupled.key, where))
        if any(overlaps(coupled.key, key) for key in keys):
            what = f"{coupled.key!r} is set by the axis itself."
            problems.append(Problem(where, what, action="Remove it from coupled."))
        if any(overlaps(coupled.key, key) for key in held):
            what = f"{coupled.key!r} is held and coupled."
            problems.append(Problem(where, what, action="Remove it from hold or from coupled."))
    for key in keys:
        if any(overlaps(key, other) for other in held):
            what = f"{key!r} is set by the axis and held."
            where = locate(("axis", "key"))
            problems.append(Problem(where, what, action="Remove it from hold."))
    return len(problems) == before


def _unexplained_bundle(spec: SweepSpec, locate: Locate) -> list[Problem]:
    """Return the problem of values that move several keys and do not say why they are one."""
    if spec.axis.why is not None:
        return []
    for value in axis_values(spec.axis):
        keys = tuple(flatten(value.data))
        if len(keys) > 1:
            what = f"'why' is missing: value {value.name} sets {len(keys)} keys, {', '.join(keys)}."
            action = "Write in a sentence why they are one intervention, or set one key per value."
            return [Problem(locate(("axis", "why")), what, action=action)]
    return []


def check_named_values(
    locate: Locate, spec: SweepSpec, values: Sequence[AxisValue], problems: list[Problem]
) -> None:
    """Add a control or a prediction that names no value of the axis."""
    names = [value.name for value in values]
    allowed = f"Choose one of {', '.join(names)}."
    if not any(value.is_control for value in values):
        what = f"{spec.axis.control!r} is not among the axis values."
        problems.append(Problem(locate(("axis", "control")), what, allowed))
    known = [value.key for value in values]
    for given in spec.axis.expect:
        if value_key(given) not in known:
            where = locate(("axis", "expect", str(given)))
            problems.append(Problem(where, f"{given!r} is not among the axis values.", allowed))
