"""Tables of keys, read off the pydantic schemas and the shipped profiles."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rltune.comparability.knobs import KNOBS
from rltune.spec.identity import flatten, is_excluded, value_text
from rltune.spec.keys import VARIANT_SECTIONS, models_of, variants
from rltune.spec.schema.sweep import SweepSpec
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.yamlfile import read_yaml

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "configs" / "profiles"
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a config.

    Attributes:
        name: Dotted, as it is written in a file; `[]` stands for an item of a list.
        anchor: Its id on the page, unique among variants that have a key of one name.
        domain: What is allowed.
        default: As it is written in YAML; `required` without one.
        sentence: What it is, with its unit.

    """

    name: str
    anchor: str
    domain: str
    default: str
    sentence: str


def trial_config_tables() -> str:
    """Return every section of a trial config, its variants included."""
    parts: list[str] = []
    plain = [_key(TrialConfig, name, "", "") for name in ("seed",)]
    parts.append(_table(plain))
    for section, info in TrialConfig.model_fields.items():
        models = models_of(info.annotation)
        if not models:
            continue
        parts.append(f"## {section}\n\n{info.description}")
        parts.append(_section(section, models))
    return "\n\n".join(parts)


def sweep_file_tables() -> str:
    """Return every key of a sweep file."""
    return _table(list(_keys(SweepSpec, "", "")))


def _section(section: str, models: Sequence[type[BaseModel]]) -> str:
    if len(models) == 1:
        return _table(list(_keys(models[0], f"{section}.", f"{section}.")))
    tag = VARIANT_SECTIONS[section]
    own = [set(model.model_fields) for model in models]
    shared = [name for name in models[0].model_fields if all(name in names for names in own)]
    shared = [name for name in shared if name == tag or _is_same(models, name)]
    kinds = list(variants(section))
    kind = Key(
        f"{section}.{tag}",
        f"{section}.{tag}",
        ", ".join(f"`{kind}`" for kind in kinds),
        f"`{_default_kind(section)}`",
        str(models[0].model_fields[tag].description),
    )
    rows = [kind]
    for name in shared:
        if name != tag:
            rows += _of(models[0], name, f"{section}.", f"{section}.")
    parts = [_table(rows)]
    for model, own_kind in zip(models, kinds, strict=True):
        keys = [
            key
            for name in model.model_fields
            if name not in shared
            for key in _of(model, name, f"{section}.", f"{section}.{own_kind}.")
        ]
        doc = " ".join((model.__doc__ or "").split("\n\n")[0].split())
        parts.append(f"### {section}.{tag}: {own_kind}\n\n{doc}")
        parts.append(_table(keys) if keys else "It has no other keys.")
    return "\n\n".join(parts)


def _is_same(models: Sequence[type[BaseModel]], name: str) -> bool:
    """Tell whether all variants mean the same by a key."""
    rows = [_schema(model)["properties"][name] for model in models]
    return all(row == rows[0] for row in rows)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _default_kind(section: str) -> str:
    default = TrialConfig.model_fields[section].get_default(call_default_factory=True)
    return str(getattr(default, VARIANT_SECTIONS[section]))


def _keys(model: type[BaseModel], prefix: str, anchor: str) -> Iterator[Key]:
    for name in model.model_fields:
        yield from _of(model, name, prefix, anchor)


def _of(model: type[BaseModel], name: str, prefix: str, anchor: str) -> Iterator[Key]:
    """Yield a key, or those of the section that stands there."""
    info = model.model_fields[name]
    inner = models_of(info.annotation)
    mark = {tuple: "[]", dict: ".NAME"}.get(get_origin(info.annotation), "")
    if not inner or mark:
        yield _key(model, name, prefix, anchor)
    for one in inner:
        yield from _keys(one, f"{prefix}{name}{mark}.", f"{anchor}{name}.")


def _key(model: type[BaseModel], name: str, prefix: str, anchor: str) -> Key:
    info, whole = model.model_fields[name], _schema(model)
    own = dict(whole["properties"][name])
    for bound in info.metadata:  # a validator of ours before them hides them from the schema
        own |= {sign: getattr(bound, of) for of, sign in _LIMITS.items() if hasattr(bound, of)}
    return Key(
        f"{prefix}{name}",
        f"{anchor}{name}",
        _domain(own, whole.get("$defs", {})),
        _default(info),
        str(info.description),
    )


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return f"`{json.dumps(value, ensure_ascii=False)}`"


_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}


def _domain(schema: Schema, defs: Schema) -> str:
    """Return what a JSON schema allows, in words."""
    if "$ref" in schema:
        return _domain(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(v) if v is None else v}`" for v in schema["enum"])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_domain(option, defs) for option in options))
    kind = schema.get("type")
    if isinstance(kind, list):  # only where any scalar may stand
        return "one value"
    if kind in ("integer", "number"):
        return _NOUNS[kind] + _bounds(schema)
    if kind == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})]
        named = dict.fromkeys(_domain(item, defs) for item in items)
        return "list: " + "; ".join(named)
    return _NOUNS[str(kind)] if kind else "anything"


_NOUNS = {
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "string": "text",
    "null": "`null`",
    "object": "mapping",
}


def _bounds(schema: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    known = [f"{sign} {schema[name]:,}" for name, sign in signs.items() if name in schema]
    return f" {', '.join(known)}" if known else ""


def _table(keys: Sequence[Key]) -> str:
    head = "| key | allowed | default | meaning |\n|---|---|---|---|"
    rows = "\n".join([head, *(_row(key) for key in keys)])
    return f'<div class="cards keys" markdown>\n\n{rows}\n\n</div>'  # cards on a phone: site.css


def _row(key: Key) -> str:
    is_config = key.name in TrialConfig.model_fields or "." in key.name
    extra = " *An [intervention knob](comparability.md#knobs).*" if key.name in KNOBS else ""
    if is_config and is_excluded(key.name):
        extra += " *No part of a trial's identity.*"
    cells = (f"`{key.name}`{{#{key.anchor}}}", key.domain, key.default, key.sentence + extra)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def knob_table() -> str:
    """Return the intervention knobs, each with the reason why it must be stated."""
    rows = [f"| [`{name}`](config.md#{_anchor(name)}) | {why} |" for name, why in KNOBS.items()]
    return "\n".join(["| knob | why it must be stated |", "|---|---|", *rows])


def _anchor(name: str) -> str:
    """Return the id of a key on the page of all keys: that of its first variant."""
    section, _, rest = name.partition(".")
    models = variants(section)
    for variant, model in models.items():
        if rest in model.model_fields and not _is_in_all(list(models.values()), rest):
            return f"{section}.{variant}.{rest}"
    return name


def _is_in_all(models: Sequence[type[BaseModel]], name: str) -> bool:
    return all(name in model.model_fields for model in models)


def profile_table() -> str:
    """Return what each shipped profile sets; what it sets for one kind of env comes last."""
    names = [path.stem for path in sorted(PROFILES.glob("*.yaml"), key=_size)]
    settings = {name: flatten(_read(name)) for name in names}
    keys = dict.fromkeys(key for own in settings.values() for key in own)
    rows = [
        f"| {_profile_key(key)} | "
        + " | ".join(_cell(settings[name], key) for name in names)
        + " |"
        for key in sorted(keys, key=lambda key: key.startswith("by_env."))
    ]
    head = f"| key | {' | '.join(f'`{name}`' for name in names)} |\n|---|{'---|' * len(names)}"
    return "\n".join([head, *rows])


def _profile_key(key: str) -> str:
    if not key.startswith("by_env."):
        return f"`{key}`"
    _, env, rest = key.split(".", 2)
    return f"`{rest}` of {env}"


def _size(path: Path) -> int:
    return int(_read(path.stem)["budget"]["steps"])


@cache
def _read(profile: str) -> dict[str, Any]:
    file = read_yaml(PROFILES / f"{profile}.yaml", kind="profile")
    return dict(file.data)  # type: ignore[union-attr]


def _cell(settings: Mapping[str, Any], key: str) -> str:
    return f"`{value_text(settings[key])}`" if key in settings else ""
