"""From pydantic's findings to rltune's messages: file:line: key: value, allowed, suggestion."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from rltune.errors import Problem
from rltune.spec.errors import VIOLATION, Violation
from rltune.spec.keys import did_you_mean, models_of
from rltune.spec.paths import KeyPath, key_path
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.validators import cross_violations

Locate = Callable[[KeyPath], str]
"""Key path -> `file:line: dotted.key`."""

_NOUNS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "tuple_type": "a list",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_YAML_WORDS = {"yes", "no", "on", "off", "y", "n", "True", "False", "TRUE", "FALSE", "Yes", "No"}


def show(value: object) -> str:
    """Return a value as it is written in YAML, text in quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(list(value) if isinstance(value, tuple) else value)


def problems_from(
    error: ValidationError, model: type[BaseModel], locate: Locate
) -> Iterator[Problem]:
    """Yield one Problem for every finding of a validation, in the file's words."""
    for detail in error.errors(include_url=False):
        path, owner = _resolve(model, detail["loc"])
        if detail["type"] == VIOLATION:
            yield from _violations(detail["ctx"]["violations"], path, locate)
        else:
            yield _translate(dict(detail), path, owner, locate)


def _violations(
    violations: tuple[Violation, ...], path: KeyPath, locate: Locate
) -> Iterator[Problem]:
    for violation in violations:
        tail = key_path(violation.key) if violation.key else ()
        yield Problem(locate(path + tail), violation.what, action=violation.action)


def _resolve(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[KeyPath, type[BaseModel] | None]:
    """Return the key path of a pydantic location and the model that owns its last key.

    Pydantic puts the tag of a variant into the location; a file has no such key.
    """
    path: list[str] = []
    models: tuple[type[BaseModel], ...] = (model,)
    owner: type[BaseModel] | None = model
    for part in loc:
        if len(models) > 1:
            models = tuple(m for m in models if m.model_fields["kind"].default == part)
            continue
        path.append(str(part))
        owner = models[0] if models else None
        info = owner.model_fields.get(str(part)) if owner is not None else None
        if info is not None:
            models = models_of(info.annotation)
        elif not isinstance(part, int):
            models = ()
    return tuple(path), owner


def _translate(
    detail: dict[str, Any], path: KeyPath, owner: type[BaseModel] | None, locate: Locate
) -> Problem:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    key = path[-1] if path else ""
    where = locate(path)
    if kind in ("extra_forbidden", "invalid_key", "missing"):
        return _wrong_key(kind, where, path, owner)
    if kind in ("literal_error", "union_tag_invalid", "union_tag_not_found"):
        return _wrong_choice(kind, value, context, path, locate)
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return Problem(where, f"{show(value)} is out of range.", f"Give {words} {context[bound]}.")
    if kind in _NOUNS:
        return Problem(where, f"{show(value)} is not {_NOUNS[kind]}.", action=_hint(kind, value))
    if kind in ("too_short", "string_too_short"):
        return Problem(where, f"{show(value)} is empty.", "Give at least one.")
    if kind == "string_pattern_mismatch":
        return Problem(where, f"{show(value)} has the wrong form.", _sentence(owner, key))
    return Problem(where, f"{show(value)}: {detail['msg']}.")


def _wrong_key(kind: str, where: str, path: KeyPath, owner: type[BaseModel] | None) -> Problem:
    key, section = path[-1], ".".join(path[:-1]) or "this file"
    if kind == "missing":
        return Problem(where, f"{key!r} is missing from {section}.", _sentence(owner, key))
    names = list(owner.model_fields) if owner is not None else []
    if others := _kinds_with(path):
        here = owner.model_fields["kind"].default if owner is not None else None
        what = f"{key!r} belongs to {section}.kind {' or '.join(others)}; the kind is {here} here."
        return Problem(where, what, action=f"Set {section}.kind: {others[0]}, or remove {key!r}.")
    allowed = f"Choose one of {', '.join(names)}."
    return Problem(where, f"{key!r} is not a key of {section}.", allowed, did_you_mean(key, names))


def _kinds_with(path: KeyPath) -> list[str]:
    """Return the kinds of a section with variants that have a key; one of them is not chosen."""
    info = TrialConfig.model_fields.get(path[0]) if len(path) == 2 else None
    models = models_of(info.annotation) if info is not None else ()
    having = [model for model in models if len(models) > 1 and path[1] in model.model_fields]
    return [str(model.model_fields["kind"].default) for model in having]


def _wrong_choice(
    kind: str, value: object, context: dict[str, Any], path: KeyPath, locate: Locate
) -> Problem:
    if kind == "union_tag_not_found":
        return Problem(locate(path), f"'kind' is missing from {'.'.join(path)}.")
    expected = context.get("expected") or context["expected_tags"]
    if kind == "union_tag_invalid":
        path, value = (*path, "kind"), context["tag"]
    noun = path[-2] if path[-1] == "kind" and len(path) > 1 else path[-1]
    choices = re.findall(r"'([^']*)'", expected)
    article = "an" if noun[:1] in "aeiou" else "a"
    return Problem(
        locate(path),
        f"{show(value)} is not {article} {noun}.",
        f"Choose one of {', '.join(choices)}.",
        did_you_mean(value, choices),
    )


def _hint(kind: str, value: object) -> str:
    if kind == "bool_type" and str(value) in _YAML_WORDS:
        return "Write true or false, without quotes."
    return "Put it in quotes." if kind == "string_type" else ""


def _sentence(owner: type[BaseModel] | None, key: str) -> str:
    info = owner.model_fields.get(key) if owner is not None else None
    return (info.description or "") if info is not None else ""


def validate(
    model: type[BaseModel], data: Mapping[str, Any], locate: Locate, problems: list[Problem]
) -> Any:
    """Return data as an instance of model, or None after adding what is wrong to problems."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems.extend(problems_from(error, model, locate))
        problems.extend(_cross_problems(error, model, data, locate))
        return None


def _cross_problems(
    error: ValidationError, model: type[BaseModel], data: Mapping[str, Any], locate: Locate
) -> Iterator[Problem]:
    """Yield what the valid sections contradict: pydantic does not look once one section is bad."""
    broken = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
    if model is not TrialConfig or not broken:
        return
    sections = {}
    for name, info in model.model_fields.items():
        if name not in broken and name in data:
            fields: dict[str, Any] = {name: (info.annotation, info)}
            alone: Any = create_model(name, **fields)
            sections[name] = getattr(alone.model_validate({name: data[name]}), name)
    yield from _violations(tuple(cross_violations(sections)), (), locate)
