"""Turns pydantic's errors into rltune's messages: file:line: key: value, allowed, suggestion."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from rltune.errors import Problem
from rltune.spec.errors import VIOLATION, Violation
from rltune.spec.identity import value_text
from rltune.spec.keys import VARIANT_SECTIONS, did_you_mean, models_of, variants
from rltune.spec.paths import OPEN_SECTIONS, KeyPath, dotted, key_path
from rltune.spec.schema.seeds import FORMS
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
    error: ValidationError,
    model: type[BaseModel],
    locate: Locate,
    given: Mapping[str, Any] | None = None,
) -> Iterator[Problem]:
    """Yield what a validation found, in the file's words; keys of other variants in one Problem.

    From the data `given`, a section is shown as it would be right.
    """
    strange: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False):
        path, owner = _resolve(model, detail["loc"])
        if detail["type"] == VIOLATION:
            yield from _violations(detail["ctx"]["violations"], path, locate)
        elif detail["type"] == "extra_forbidden" and _variants_with(path):
            strange.setdefault(path[0], [str(detail["loc"][1])]).append(path[1])
        else:
            yield _translate(dict(detail), path, owner, locate)
    for section, (variant, *keys) in strange.items():
        yield _of_other_variants(section, variant, keys, (given or {}).get(section, {}), locate)


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
        if part in FORMS:
            continue
        if len(models) > 1:
            models = tuple(m for m in models if m is variants(path[-1]).get(str(part)))
            continue
        path.append(str(part))
        if dotted(path[:-1]) in OPEN_SECTIONS:
            continue  # a free name; the models are of what it names
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
    allowed = f"Choose one of {', '.join(names)}."
    return Problem(where, f"{key!r} is not a key of {section}.", allowed, did_you_mean(key, names))


def _variants_with(path: KeyPath) -> list[str]:
    """Return the variants of a section that have a key."""
    models = variants(path[0]) if len(path) == 2 else {}
    return [name for name, model in models.items() if path[1] in model.model_fields]


def _of_other_variants(
    section: str, variant: str, keys: list[str], given: Mapping[str, Any], locate: Locate
) -> Problem:
    """Return the problem of keys that the chosen variant of a section does not have."""
    tag = VARIANT_SECTIONS[section]
    owners: dict[str, list[str]] = {}
    for key in keys:
        owners.setdefault(" or ".join(_variants_with((section, key))), []).append(repr(key))
    parts = [
        f"{_all(named)} belong{'s' * (len(named) == 1)} to {section}.{tag} {others}"
        for others, named in owners.items()
    ]
    named = _all([repr(key) for key in keys])
    other = _variants_with((section, keys[0]))[0]
    action = f"Set {section}.{tag}: {other}, or remove {named}."
    if len(owners) > 1:
        action = f"Remove what does not belong to the {tag} that you mean."
    form = _right_form(section, (variant, other), keys, given)
    what = f"{', '.join(parts)}; the {tag} is {variant} here."
    return Problem(locate((section, keys[0])), what, action, f"Did you mean {form!r}?")


def _all(named: list[str]) -> str:
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _right_form(
    section: str, names: tuple[str, str], keys: list[str], given: Mapping[str, Any]
) -> str:
    """Return a section as it would be right, without defaults and what all its variants have.

    It is of the variant that the strange keys belong to, if they say anything, else of the other.
    """
    models = variants(section)
    here, other = (models[name].model_fields for name in names)
    is_meant = all(key in other for key in keys) and any(
        given.get(key) != other[key].default for key in keys
    )
    fields = other if is_meant else here
    shown = {VARIANT_SECTIONS[section]: names[is_meant]}
    for key, value in given.items():
        is_own = key in fields and not all(key in model.model_fields for model in models.values())
        if is_own and value != fields[key].default and not isinstance(value, Mapping):
            shown[key] = value_text(value)
    return f"{section}: {{{', '.join(f'{key}: {text}' for key, text in shown.items())}}}"


def _wrong_choice(
    kind: str, value: object, context: dict[str, Any], path: KeyPath, locate: Locate
) -> Problem:
    if kind == "union_tag_not_found":
        tag = VARIANT_SECTIONS[path[-1]]
        return Problem(locate(path), f"{tag!r} is missing from {'.'.join(path)}.")
    expected = context.get("expected") or context["expected_tags"]
    if kind == "union_tag_invalid":
        path, value = (*path, VARIANT_SECTIONS[path[-1]]), context["tag"]
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
    if value is None:
        return "Write a value, or leave the key out."
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
        problems.extend(problems_from(error, model, locate, data))
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
    for name in model.model_fields:
        if name not in broken and name in data:
            sections[name] = getattr(_alone(name).model_validate({name: data[name]}), name)
    yield from _violations(tuple(cross_violations(sections)), (), locate)


@cache  # to build a model takes far longer than to use it
def _alone(name: str) -> type[BaseModel]:
    """Return a model with one section of a trial config."""
    info = TrialConfig.model_fields[name]
    fields: dict[str, Any] = {name: (info.annotation, info)}
    alone: type[BaseModel] = create_model(name, **fields)
    return alone
