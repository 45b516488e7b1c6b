"""What `rltune play` plays: from the text ENV and `--set` to an env section and its reward."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rltune.errors import InputError, Problem
from rltune.spec.keys import did_you_mean
from rltune.spec.load import load_sweep
from rltune.spec.problems import problems_from
from rltune.spec.resolve import Layer
from rltune.spec.schema.env import (
    CustomEnvConfig,
    Env,
    FrozenLakeConfig,
    MultihopQaConfig,
    SokobanConfig,
)
from rltune.spec.schema.reward import RewardConfig
from rltune.spec.unread import without_unread
from rltune.spec.yamlfile import parse_value

_MODELS: dict[str, type[Env]] = {
    "sokoban": SokobanConfig,
    "frozen_lake": FrozenLakeConfig,
    "multihop_qa": MultihopQaConfig,
    "custom": CustomEnvConfig,
}
KINDS = tuple(kind for kind in _MODELS if kind != "custom")
_NOT_SET = ("kind", "prompt", "train_tasks", "split_seed")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is played.

    Attributes:
        env: The env section.
        reward: The reward section; None leaves reward and success to the environment.
        sections: The other sections of a sweep's control, as plain values; empty without a sweep.

    """

    env: Env
    reward: RewardConfig | None = None
    sections: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_sweep(self) -> bool:
        """Whether a sweep said what is played."""
        return bool(self.sections)


def choose(
    given: str, *, prompt: str | None, overrides: Sequence[str], defaults: Mapping[str, Any]
) -> Chosen:
    """Return what a person wants to play.

    Args:
        given: A kind of env, a sweep file (its control is played), or an import path.
        prompt: Replaces the sweep's; `compact` for a kind when None.
        overrides: `key=value` texts over the env section.
        defaults: Keys of the section of a kind that replace the schema's.

    Raises:
        InputError: There is no such env, key or value; all such are named.

    """
    sections: dict[str, Any] = {}
    if given in KINDS:
        section = {"kind": given, "prompt": "compact", **defaults}
    elif given.endswith((".yaml", ".yml")):
        sections = dict(load_sweep(Path(given)).control.config)
        section = dict(sections.pop("env"))
    elif ":" in given:
        section = {"kind": "custom", "factory": given}
    else:
        what = f"{given!r} is not an environment."
        allowed = f"Choose one of {', '.join(KINDS)}, a sweep file, or my_pkg.my_mod:MyEnv."
        raise InputError(Problem("ENV", what, allowed, did_you_mean(given, KINDS)))
    asked = {} if prompt is None else {"prompt": prompt}
    section = _laid_over(section, asked | _values(section["kind"], overrides))
    reward = TypeAdapter(RewardConfig | None).validate_python(sections.pop("reward", None))
    return Chosen(_validated(section), reward, sections)


def _laid_over(section: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Return a section with what was asked for, without what that leaves unread."""
    (kept,) = without_unread([Layer({"env": section}, "")], [Layer({"env": asked}, "--set")])
    return {**kept.data["env"], **asked}


def _values(kind: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the keys that were set."""
    keys = [name for name in _MODELS[kind].model_fields if name not in _NOT_SET]
    values: dict[str, Any] = {}
    problems = []
    for text in overrides:
        given, equals, value = text.partition("=")
        key, where = given.removeprefix("env."), f"--set {text}"
        if not equals or key not in keys:
            what = f"{kind} has no such key." if equals else "is not of the form KEY=VALUE."
            allowed = f"Its keys are {', '.join(keys)}."
            problems.append(Problem(where, what, allowed, did_you_mean(key, keys)))
            continue
        try:
            values[key] = parse_value(value)
        except Exception:  # whatever the YAML reader says
            problems.append(Problem(where, f"{value!r} is not a YAML value."))
    if problems:
        raise InputError(problems)
    return values


def _validated(section: Mapping[str, Any]) -> Env:
    model = _MODELS[section["kind"]]
    try:
        return model.model_validate(section)
    except ValidationError as error:
        found = problems_from(error, model, lambda path: ".".join(("env", *map(str, path))))
        raise InputError(list(found)) from error
