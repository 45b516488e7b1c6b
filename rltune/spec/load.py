"""Loads a sweep file and resolves its conditions; collects every problem before raising.

Order of resolution: base, profile, hold, condition (axis value, then coupled keys), seed, --set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import Problem, SpecError
from rltune.spec.axis_checks import axis_leaf_keys, check_axis, check_named_values, unknown_key
from rltune.spec.conditions import Condition, axis_values, condition_layers
from rltune.spec.identity import canonical_json, config_hash, flatten, sha256_hex
from rltune.spec.keys import did_you_mean
from rltune.spec.overrides import override_layers
from rltune.spec.paths import key_path
from rltune.spec.problems import Locate, validate
from rltune.spec.resolve import (
    Layer,
    env_kind,
    file_layer,
    lines_below,
    locate,
    merge_layers,
    resolve_config,
    split_profile,
)
from rltune.spec.schema.seeds import UntilDecided
from rltune.spec.schema.sweep import LAPTOP, ProtocolSpec, SweepSpec
from rltune.spec.shortforms import config_tree
from rltune.spec.sources import find_source
from rltune.spec.unread import without_unread
from rltune.spec.yamlfile import YamlFile, read_yaml
from rltune.types import SeedPlan

HASH_IN_NAME = 8


@dataclass(frozen=True, slots=True)
class LoadedSweep:
    """A sweep file with everything that it names, resolved and valid."""

    path: Path  # the sweep file, as given
    text: str  # the file as read
    spec: SweepSpec  # the file as a typed tree
    profile: str  # name of the profile that was used
    overrides: tuple[str, ...]  # the `--set` texts
    # seeds to run: the file's, or those asked for; the most that may be, until decided
    seeds: tuple[int, ...]
    protocol: ProtocolSpec | None  # the protocol file, if the sweep names one
    conditions: tuple[Condition, ...]  # in the order of the file; one of them is the control
    sweep_hash: str  # 64 hex digits over what runs, independent of the seeds
    # Where each key was written: base to `--set`, the conditions' own among them.
    layers: tuple[Layer, ...] = ()
    until: SeedPlan | None = None  # seeds until decided; None for the seeds as they are

    def where(self, key: str) -> str:
        """Return `file:line: dotted.key` of where a dotted key was last written."""
        return locate(self.layers, key_path(key)) if self.layers else f"{self.path}: {key}"

    @property
    def run_name(self) -> str:
        """Return `<name>-<hash8>`, the name of the run folder."""
        return f"{self.spec.name}-{self.sweep_hash[:HASH_IN_NAME]}"

    @property
    def control(self) -> Condition:
        """Return the condition that the others are compared with."""
        return next(condition for condition in self.conditions if condition.is_control)

    @property
    def axis_keys(self) -> tuple[str, ...]:
        """Return the dotted leaf keys that the axis sets: one, or those of the bundles."""
        return axis_leaf_keys(self.spec)

    @property
    def coupled_keys(self) -> tuple[str, ...]:
        """Return the dotted keys that are declared to move with the axis."""
        return tuple(coupled.key for coupled in self.spec.axis.coupled)

    @property
    def held_keys(self) -> tuple[str, ...]:
        """Return the dotted leaf keys that the sweep file holds."""
        return tuple(flatten(config_tree(self.spec.hold)))


def load_sweep(
    path: Path | str,
    *,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> LoadedSweep:
    """Return a sweep file, resolved for a profile.

    Args:
        path: The sweep file.
        profile: One of the sweep's allowed profiles; None takes its default.
        overrides: `key=value` texts from the command line, applied last.
        seeds: Seeds to run instead of the file's.

    Raises:
        SpecError: Carries every problem of the sweep and of the files that it names.

    """
    file = read_yaml(Path(path), kind="sweep file")
    if isinstance(file, Problem):
        raise SpecError(file)
    if "sweeps" in file.data and "axis" not in file.data:
        what = "is a study file, which lists sweep files."
        raise SpecError(Problem(str(path), what, action=f"Run it: rltune study {path}."))
    problems: list[Problem] = []
    here = file.locate
    spec: SweepSpec | None = validate(SweepSpec, file.data, here, problems)
    chosen = _profile(file.data, spec, profile, here, problems)
    protocol = _protocol(file, here, problems)
    presets, hold = _shared_layers(file, chosen, here, problems)
    last = override_layers(overrides, spec, problems)
    shared = [*without_unread(presets, [*hold, *last]), *hold]
    wanted = _seeds(spec, seeds, problems)
    conditions: tuple[Condition, ...] = ()
    if spec is not None and check_axis(spec, here, problems):
        conditions = _conditions(file, spec, shared, last, problems)
    elif shared:
        layers = [*shared, *last]
        resolve_config(merge_layers(layers, problems), layers, problems)
    if problems or spec is None:
        raise SpecError(list(dict.fromkeys(problems)))
    return LoadedSweep(
        path=Path(path),
        text=file.text,
        spec=spec,
        profile=chosen,
        overrides=tuple(overrides),
        seeds=wanted,
        protocol=protocol,
        conditions=conditions,
        sweep_hash=_sweep_hash(spec, conditions),
        layers=(*shared, *_own_layers(file, spec), *last),
        until=spec.seeds.plan if seeds is None and isinstance(spec.seeds, UntilDecided) else None,
    )


def _profile(
    data: Mapping[str, Any],
    spec: SweepSpec | None,
    asked: str | None,
    locate: Locate,
    problems: list[Problem],
) -> str:
    """Return the profile to use, from the raw data when the spec is not valid.

    After a refused one, another is returned so that the rest can still be checked.
    """
    if spec is None:
        profiles = data.get("profiles")
        default = profiles.get("default") if isinstance(profiles, Mapping) else None
        return asked or (default if isinstance(default, str) else LAPTOP)
    allowed = spec.profiles.allowed
    chosen = allowed[0]
    for name, where in (
        (spec.profiles.default, locate(("profiles", "default"))),
        (asked, "--profile"),
    ):
        if name is not None and name not in allowed:
            what = f"{name!r} is not a profile of this sweep."
            choices = f"Choose one of {', '.join(allowed)}."
            problems.append(Problem(where, what, choices, did_you_mean(name, allowed)))
        elif name is not None:
            chosen = name
    return chosen


def _protocol(file: YamlFile, locate: Locate, problems: list[Problem]) -> ProtocolSpec | None:
    name = file.data.get("protocol")
    if not isinstance(name, str):
        return None
    found = find_source(file.path, "protocol", name, locate(("protocol",)))
    if isinstance(found, Problem):
        problems.append(found)
        return None
    here = found.locate
    protocol: ProtocolSpec | None = validate(ProtocolSpec, found.data, here, problems)
    for key in protocol.free if protocol is not None else ():
        problems.extend(unknown_key(key, f"{found.where(('free', key))}: free"))
    return protocol


def _shared_layers(
    file: YamlFile, profile: str, locate: Locate, problems: list[Problem]
) -> tuple[list[Layer], list[Layer]]:
    """Return base with profile, and hold, as layers; no layers where one cannot be read.

    The profile comes in two: what it sets for every env, and for the kind of env that base or hold
    name.
    """
    layers = []
    names = (
        ("base", file.data.get("base"), ("base",)),
        ("profile", profile, ("profiles", "allowed")),
    )
    for kind, name, path in names:
        if not isinstance(name, str) or not name:
            continue
        found = find_source(file.path, kind, name, locate(path))
        layer = found if isinstance(found, Problem) else file_layer(found)
        if isinstance(layer, Problem):
            problems.append(layer)
        else:
            layers.append(layer)
    if len(layers) < len(names):
        return [], []
    hold = _hold(file)
    base, whole = layers
    parts = split_profile(whole, env_kind([base, whole, *hold]), problems)
    return [base, *parts], hold


def _hold(file: YamlFile) -> list[Layer]:
    hold = file.data.get("hold")
    if not isinstance(hold, Mapping):
        return []
    try:
        tree = config_tree(hold)
    except ValueError:  # reported with the sweep file's own problems
        tree = {}
    return [Layer(tree, str(file.path), lines_below(file, ("hold",)), "hold.")]


def _seeds(
    spec: SweepSpec | None, asked: Sequence[int] | None, problems: list[Problem]
) -> tuple[int, ...]:
    if asked is None:
        return _file_seeds(spec) if spec is not None else ()
    for seed in dict.fromkeys(asked):
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
            problems.append(
                Problem("--seeds", f"{seed!r} is not a seed.", "Give whole numbers >= 0.")
            )
        elif list(asked).count(seed) > 1:
            problems.append(Problem("--seeds", f"{seed} is given twice.", "Remove the duplicate."))
    if not asked:
        problems.append(
            Problem("--seeds", "No seed is given.", "Give at least one, such as 0,1,2.")
        )
    return tuple(asked)


def _file_seeds(spec: SweepSpec) -> tuple[int, ...]:
    return tuple(range(spec.seeds.max)) if isinstance(spec.seeds, UntilDecided) else spec.seeds


def _conditions(
    file: YamlFile,
    spec: SweepSpec,
    shared: list[Layer],
    last: list[Layer],
    problems: list[Problem],
) -> tuple[Condition, ...]:
    """Return every condition resolved with seed 0; adds what is wrong to problems."""
    values = axis_values(spec.axis)
    check_named_values(file.locate, spec, values, problems)
    if not shared:
        return ()
    base = merge_layers(shared, problems)
    seed = Layer({"seed": 0}, str(file.path))
    conditions = []
    for value in values:
        own = condition_layers(file, spec.axis, value, problems)
        merged = merge_layers([*own, seed, *last], problems, base)
        config = resolve_config(merged, [*shared, *own, seed, *last], problems)
        if config is not None:
            conditions.append(
                Condition(value.label, value.value, value.is_control, config, value.expected)
            )
    return tuple(conditions)


def _own_layers(file: YamlFile, spec: SweepSpec) -> list[Layer]:
    return [
        layer
        for value in axis_values(spec.axis)
        for layer in condition_layers(file, spec.axis, value, [])
    ]


def _sweep_hash(spec: SweepSpec, conditions: Sequence[Condition]) -> str:
    """Return the hash of what runs: name, axis, metric and the conditions, without seeds."""
    return sha256_hex(
        canonical_json(
            {
                "name": spec.name,
                "axis": spec.axis.key,
                "metric": [spec.metric.name, spec.metric.mode],
                "conditions": sorted(
                    [c.label, c.is_control, config_hash(c.config)] for c in conditions
                ),
            }
        )
    )
