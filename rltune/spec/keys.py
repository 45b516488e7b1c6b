"""The keys of a trial config, read from the schema."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from rltune.spec.paths import OPEN_SECTIONS, KeyPath, dotted, is_open, key_path
from rltune.spec.schema.env import Env
from rltune.spec.schema.env_base import TasksConfig
from rltune.spec.schema.trial import TrialConfig


def models_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the section models that an annotation admits: none, one, or the variants."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    if get_origin(annotation) is None:
        return ()
    return tuple(model for part in get_args(annotation) for model in models_of(part))


ENV_KINDS: tuple[str, ...] = tuple(m.model_fields["kind"].default for m in models_of(Env))
"""Kinds of env."""


VARIANT_SECTIONS: Mapping[str, str] = {
    name: info.discriminator
    for name, info in TrialConfig.model_fields.items()
    if isinstance(info.discriminator, str)
}
"""Section with variants -> the key that names the variant."""

_KEPT = {
    "advantage": ("shaping",),
    "attribution": (),
    "env": tuple(name for name in TasksConfig.model_fields if name != "kind"),
}


def variants(section: str) -> dict[str, type[BaseModel]]:
    """Return the variants of a section by name; none where it has no variants."""
    if section not in VARIANT_SECTIONS:
        return {}
    models = models_of(TrialConfig.model_fields[section].annotation)
    return {str(model.model_fields[VARIANT_SECTIONS[section]].default): model for model in models}


def kept_keys(section: str, variant: object) -> Collection[str]:
    """Return the keys of a section that stay when another layer chooses this variant.

    Estimators, attributions and environments may give one name to different things: of those only
    what is the same in every variant stays.
    """
    model = variants(section).get(str(variant))
    return _KEPT.get(section, tuple(model.model_fields) if model is not None else ())


def typed(config: Mapping[str, Any]) -> TrialConfig:
    """Return a resolved or recorded config as its typed tree."""
    return TrialConfig.model_validate(of_its_variants(config))


def of_its_variants(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without keys of other variants, which older records have (version 1)."""
    own = {section: own_keys(section, config[section]) for section in VARIANT_SECTIONS}
    return {**config, **own}


def own_keys(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section without the keys of other variants."""
    fields = variants(section)[given[VARIANT_SECTIONS[section]]].model_fields
    return {key: value for key, value in given.items() if key in fields}


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, bool]]:
    for name, info in model.model_fields.items():
        holds_many = get_origin(info.annotation) in (tuple, dict)
        models = () if holds_many else models_of(info.annotation)
        yield f"{prefix}{name}", not models or _admits_null(info.annotation)
        for inner in models:
            yield from _walk(inner, f"{prefix}{name}.")


def _admits_null(annotation: Any) -> bool:
    return type(None) in get_args(annotation)


@cache
def config_keys() -> Mapping[str, bool]:
    """Return every dotted key of a trial config -> whether one value may stand there.

    The keys of all variants are in it. A section that can be null is both.
    """
    return dict(_walk(TrialConfig, ""))


def choices_of(key: str) -> tuple[str, ...]:
    """Return the texts that may stand at a dotted key; none where it takes no text, or any."""
    *sections, last = key_path(key)
    models: tuple[type[BaseModel], ...] = (TrialConfig,)
    for name in sections:
        infos = [model.model_fields[name] for model in models if name in model.model_fields]
        models = tuple(inner for info in infos for inner in models_of(info.annotation))
    infos = [model.model_fields[last] for model in models if last in model.model_fields]
    return tuple(dict.fromkeys(text for info in infos for text in _texts(info.annotation)))


def _texts(annotation: Any) -> Iterator[str]:
    """Yield the texts among the literals of an annotation."""
    for part in get_args(annotation):
        if get_origin(annotation) is not Literal:
            yield from _texts(part)
        elif isinstance(part, str):
            yield part


def is_config_key(key: str) -> bool:
    """Return whether a trial config can have a dotted key."""
    return key in config_keys() or key.startswith(tuple(f"{name}." for name in OPEN_SECTIONS))


def did_you_mean(given: object, choices: Iterable[object]) -> str:
    """Return `Did you mean 'x'?`, or nothing when no choice is close."""
    texts = [str(choice) for choice in choices]
    by_tail = [text for text in texts if text.rpartition(".")[2] == str(given).rpartition(".")[2]]
    close = by_tail or difflib.get_close_matches(str(given), texts, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close and close[0] != given else ""


def nested(given: Mapping[str, Any], at: KeyPath = ()) -> dict[str, Any]:
    """Return a mapping whose dotted keys (`a.b: 1`) are nested (`a: {b: 1}`), at every level.

    The keys of open sections stay as they are.

    Raises:
        ValueError: A key is given twice, once dotted and once nested.

    """
    tree: dict[str, Any] = {}
    _fill(tree, given, at)
    return tree


def _fill(branch: dict[Any, Any], given: Mapping[str, Any], at: tuple[Any, ...]) -> None:
    for key, value in given.items():
        *parents, last = (key,) if is_open(at) else key_path(str(key))
        path, place = (*at, *parents, last), branch
        for name in parents:
            place = _branch(place, name, path)
        if isinstance(value, Mapping):
            _fill(_branch(place, last, path), value, path)
        elif last in place:
            raise ValueError(f"{dotted(path)!r} is given twice")
        else:
            place[last] = value


def _branch(place: dict[Any, Any], name: object, path: tuple[Any, ...]) -> dict[Any, Any]:
    found = place.setdefault(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{dotted(path)!r} is given twice")
    return found


def overlaps(a: str, b: str) -> bool:
    """Return whether two dotted keys are one, or one is a section that holds the other."""
    return a == b or a.startswith(b + ".") or b.startswith(a + ".")
