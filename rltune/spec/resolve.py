"""Merges layers (base, profile, hold, condition, --set) into one validated trial config."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rltune.errors import Problem
from rltune.spec.json_values import not_json
from rltune.spec.keys import ENV_KINDS, VARIANT_SECTIONS, did_you_mean, kept_keys
from rltune.spec.paths import BY_ENV, OPEN_SECTIONS, KeyPath, dotted, is_open, key_path
from rltune.spec.problems import validate
from rltune.spec.schema.env import DEFAULT_KIND
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.spec.shortforms import config_tree, long_forms
from rltune.spec.yamlfile import YamlFile

_PLACEHOLDER = "???"
_REFERENCE = re.compile(r"\$\{(\.*[A-Za-z_][A-Za-z0-9_.]*)\}")


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of config keys, which remembers where each key was written.

    Short forms (`env: my_pkg.my_mod:MyEnv`) are written out, so that layers merge key by key.
    """

    data: Mapping[str, Any]  # nested keys, without dots
    origin: str  # file (or `--set`) named in messages
    # Line of each key path of data, where known.
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    shown: str = ""  # put before the dotted key in messages: `hold.`
    # Its placeholders and references, each with its key path.
    marked: tuple[tuple[KeyPath, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Write short forms out, and look for marked texts once."""
        object.__setattr__(self, "data", long_forms(self.data))
        marked = (
            found for found in _texts(self.data) if found[1] == _PLACEHOLDER or "${" in found[1]
        )
        object.__setattr__(self, "marked", tuple(marked))

    def where(self, path: KeyPath) -> str:
        """Return `file:line: key` of a key path."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return f"{self.origin}:{self.lines[path[:end]]}: {self.shown}{dotted(path)}"
        return f"{self.origin}: {self.shown}{dotted(path)}"

    def depth(self, path: KeyPath) -> int:
        """Return how many leading parts of a key path this layer sets."""
        node: Any = self.data
        for i, part in enumerate(path):
            if not isinstance(node, Mapping) or part not in node:
                return i
            node = node[part]
        return len(path)


def file_layer(file: YamlFile) -> Layer | Problem:
    """Return a whole config file as a layer, its dotted keys nested."""
    try:
        data = config_tree(_parts_in_full(file.data))
    except ValueError as error:
        return Problem(
            str(file.path), f"{error} (with dots, nested, or in a short form).", "Keep one."
        )
    return Layer(data, str(file.path), lines_below(file, ()))


def _parts_in_full(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's keys with the short forms in what it sets for one kind of env written out."""
    parts = data.get(BY_ENV)
    if not isinstance(parts, Mapping):
        return dict(data)
    full = {k: long_forms(part) if isinstance(part, Mapping) else part for k, part in parts.items()}
    return {**data, BY_ENV: full}


def split_profile(profile: Layer, kind: str, problems: list[Problem]) -> list[Layer]:
    """Return a profile as two layers: its keys for every env, then those for this kind of env."""
    common = {key: value for key, value in profile.data.items() if key != BY_ENV}
    layers = [replace(profile, data=common)]
    parts = profile.data.get(BY_ENV, {})
    if not isinstance(parts, Mapping):
        what = f"{parts!r} is not a mapping of keys."
        problems.append(Problem(profile.where((BY_ENV,)), what, "Give kind of env -> keys."))
        return layers
    for name, part in parts.items():
        where = profile.where((BY_ENV, str(name)))
        if name not in ENV_KINDS:
            choices = f"Choose one of {', '.join(ENV_KINDS)}."
            hint = did_you_mean(name, ENV_KINDS)
            problems.append(Problem(where, f"{name!r} is not a kind of env.", choices, hint))
        elif not isinstance(part, Mapping):
            problems.append(Problem(where, f"{part!r} is not a mapping of keys."))
        elif name == kind:
            head = (BY_ENV, kind)
            lines = {path[2:]: at for path, at in profile.lines.items() if path[:2] == head}
            env = part.get("env")  # said here: hold may be what chooses the kind, and comes later
            whole = {**part, "env": {"kind": kind, **env}} if isinstance(env, Mapping) else part
            layers.append(Layer(whole, profile.origin, lines, f"{BY_ENV}.{kind}."))
    return layers


def env_kind(layers: Sequence[Layer]) -> str:
    """Return the kind of env that the last of the layers that names one names; else the default."""
    kind = DEFAULT_KIND
    for layer in layers:
        env = layer.data.get("env")
        if isinstance(env, Mapping) and isinstance(env.get("kind"), str):
            kind = env["kind"]
    return kind


def lines_below(file: YamlFile, prefix: KeyPath, target: KeyPath = ()) -> dict[KeyPath, int]:
    """Return the lines of the keys below a prefix, as key paths of a config below target.

    Dotted keys (`loss.kl_loss_coef: 0`) are split, as `rltune.spec.keys.nested` splits them.
    """
    found: dict[KeyPath, int] = {}
    for path, line in file.lines.items():
        if path[: len(prefix)] == prefix:
            inner = target
            for name in path[len(prefix) :]:
                inner += (name,) if is_open(inner) else key_path(name)
            found[inner] = line
    return found


def merge_layers(
    layers: Sequence[Layer], problems: list[Problem], base: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return layers merged in order, later ones winning; lists are replaced, mappings merged.

    A layer that chooses another variant (`kind`) replaces the section, but for the `kept_keys`: the
    other variant's own keys mean nothing.
    """
    merged = dict(base or {})
    for given in layers:
        layer = _without_lost(given, problems)
        problems.extend(_placeholders(layer))
        problems.extend(_refused_interpolations(layer))
        merged = _merge(_without_replaced_variants(merged, layer.data), layer.data)
    return merged


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return one mapping with the keys of two; a placeholder, which is reported, sets nothing."""
    given = {key: value for key, value in new.items() if value != _PLACEHOLDER}
    both = {
        key: _merge(old[key], value)
        for key, value in given.items()
        if isinstance(value, Mapping) and isinstance(old.get(key), Mapping)
    }
    return {**old, **given, **both}


def _without_lost(layer: Layer, problems: list[Problem]) -> Layer:
    """Return a layer without the open sections that JSON cannot keep; why is added to problems."""
    for section, key in map(key_path, OPEN_SECTIONS):
        held = layer.data.get(section)
        if isinstance(held, Mapping) and key in held:
            lost = list(not_json(held[key], (section, key)))
            problems.extend(Problem(layer.where(at), what, action=do) for at, what, do in lost)
            if lost:
                rest = {name: item for name, item in held.items() if name != key}
                layer = replace(layer, data={**layer.data, section: rest})
    return layer


def _without_replaced_variants(merged: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return merged layers without the keys of a variant that the next layer replaces."""
    kept = dict(merged)
    for section, tag in VARIANT_SECTIONS.items():
        new, old = data.get(section), merged.get(section)
        if not isinstance(new, Mapping) or not isinstance(old, Mapping):
            continue
        if new.get(tag, old.get(tag)) != old.get(tag):
            shared = kept_keys(section, new[tag])
            kept[section] = {key: value for key, value in old.items() if key in shared}
    return kept


def resolve_config(
    merged: Mapping[str, Any], layers: Sequence[Layer], problems: list[Problem]
) -> dict[str, Any] | None:
    """Return the validated config as plain values, or None after adding problems."""
    if any(True for layer in layers for _ in _refused_interpolations(layer)):
        return None  # reported where it was merged; a resolver must not run
    try:
        plain = _without_references(merged) if any(layer.marked for layer in layers) else merged
    except OmegaConfBaseException as error:
        problems.append(_unresolved(error, layers))
        return None
    config = validate(TrialConfig, plain, lambda path: locate(layers, path), problems)
    return to_plain(config) if config is not None else None


def _without_references(merged: Mapping[str, Any]) -> Any:
    """Return merged layers with the value of its key in place of each `${section.key}`."""
    if not any("${" in text for _, text in _texts(merged)):
        return merged  # nearly always, and OmegaConf takes longer than all other steps
    return OmegaConf.to_container(OmegaConf.create(dict(merged)), resolve=True)


def _placeholders(layer: Layer) -> list[Problem]:
    """Return the keys whose value is OmegaConf's placeholder for a value that is missing."""
    return [
        Problem(layer.where(path), "'???' is a placeholder.", "Give a value.")
        for path, text in layer.marked
        if text == _PLACEHOLDER
    ]


def _texts(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield every text with its key path, those in lists included."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*at, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _texts(item, (*at, str(i)))


def _refused_interpolations(layer: Layer) -> Iterator[Problem]:
    """Yield the `${...}` that would make a config depend on more than its keys, or hide the seed.

    Conditions are resolved once, with seed 0: `${seed}` would be 0 in every trial. A resolver
    (`${oc.env:HOME}`) reads what the identity does not cover.
    """
    for path, text in layer.marked:
        if "${" not in text:
            continue
        where = layer.where(path)
        names = [name.lstrip(".") for name in _REFERENCE.findall(text)]
        if len(names) != text.count("${"):
            what = f"{text!r} is more than a reference to a key, such as a resolver."
            action = "Write the value itself; only ${section.key} is resolved here."
            yield Problem(where, what, action=action)
        elif "seed" in names:
            what = f"{text!r} would be 0 in every trial: the seed is filled in per trial."
            yield Problem(where, what, action="Write the value; every stream has the seed.")


def _unresolved(error: OmegaConfBaseException, layers: Sequence[Layer]) -> Problem:
    key = tuple(str(error.full_key).split(".")) if error.full_key else ()
    text = str(error).splitlines()[0].rstrip(".")
    return Problem(locate(layers, key), f"cannot be resolved: {text}.")


def locate(layers: Sequence[Layer], path: KeyPath) -> str:
    """Return where a key path was last written; for a missing key, its section."""
    best = layers[0]
    for layer in layers:
        if layer.depth(path) >= best.depth(path):
            best = layer
    return best.where(path)
