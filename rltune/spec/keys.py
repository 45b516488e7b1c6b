"""What keys a trial config has, read off the schema."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from rltune.spec.schema import TrialConfig
from rltune.spec.schema_env import Env, TasksConfig

VARIANT_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "advantage": ("shaping",),
    "attribution": (),
    "env": tuple(name for name in TasksConfig.model_fields if name != "kind"),
}
"""Section with variants -> keys that all of them share.

Choosing another `kind` replaces the section instead of merging; only the shared keys stay.
"""


def models_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the section models that an annotation admits: none, one, or the variants."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    if get_origin(annotation) is None:
        return ()
    return tuple(model for part in get_args(annotation) for model in models_of(part))


ENV_KINDS: tuple[str, ...] = tuple(m.model_fields["kind"].default for m in models_of(Env))
"""Kinds of env."""

OPEN_SECTIONS = ("env.arguments", "advantage.arguments")
"""Keys whose value is a mapping with keys of a person's own choice."""


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, bool]]:
    for name, info in model.model_fields.items():
        is_list = get_origin(info.annotation) is tuple
        models = () if is_list else models_of(info.annotation)
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


def is_config_key(key: str) -> bool:
    """Return whether a trial config can have a dotted key."""
    return key in config_keys() or key.startswith(tuple(f"{name}." for name in OPEN_SECTIONS))


def did_you_mean(given: object, choices: Iterable[object]) -> str:
    """Return `Did you mean 'x'?`, or nothing when no choice is close."""
    texts = [str(choice) for choice in choices]
    by_tail = [text for text in texts if text.rpartition(".")[2] == str(given).rpartition(".")[2]]
    close = by_tail or difflib.get_close_matches(str(given), texts, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close and close[0] != given else ""


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping whose dotted keys (`a.b: 1`) are nested (`a: {b: 1}`), at every level.

    Raises:
        ValueError: A key is given twice, once dotted and once nested.

    """
    tree: dict[str, Any] = {}
    for dotted, value in flat.items():
        item = nested(value) if isinstance(value, Mapping) else value
        *parents, last = str(dotted).split(".")
        branch = tree
        for name in parents:
            branch = branch.setdefault(name, {})
            if not isinstance(branch, dict):
                raise ValueError(f"{dotted!r} is given twice")
        _put(branch, last, item, str(dotted))
    return tree


def _put(branch: dict[str, Any], key: str, item: Any, dotted: str) -> None:
    if key not in branch:
        branch[key] = item
    elif isinstance(item, dict) and isinstance(branch[key], dict):
        for inner, value in item.items():
            _put(branch[key], inner, value, f"{dotted}.{inner}")
    else:
        raise ValueError(f"{dotted!r} is given twice")


def overlaps(a: str, b: str) -> bool:
    """Return whether two dotted keys are one, or one is a section that holds the other."""
    return a == b or a.startswith(b + ".") or b.startswith(a + ".")
