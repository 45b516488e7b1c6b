"""The environment that the arguments of a command name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rltune.errors import InputError, Problem
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.keys import did_you_mean
from rltune.spec.load import load_sweep
from rltune.spec.problems import problems_from
from rltune.spec.resolve import Layer
from rltune.spec.schema.env import (
    ArithmeticConfig,
    CustomEnvConfig,
    Env,
    FrozenLakeConfig,
    MultihopQaConfig,
    SokobanConfig,
)
from rltune.spec.schema.env_verified import VerifiedConfig
from rltune.spec.schema.reward import RewardConfig
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.unread import without_unread
from rltune.spec.yamlfile import parse_value

_MODELS: dict[str, type[Env]] = {
    "sokoban": SokobanConfig,
    "frozen_lake": FrozenLakeConfig,
    "multihop_qa": MultihopQaConfig,
    "arithmetic": ArithmeticConfig,
    "verified": VerifiedConfig,
    "custom": CustomEnvConfig,
}
_GENERATED = "reasoning_gym:"
KINDS = tuple(kind for kind in _MODELS if kind not in ("verified", "custom"))
_NOT_SET = ("kind", "prompt", "train_tasks", "split_seed")


@dataclass(frozen=True, slots=True)
class Chosen:
    """An environment to play."""

    env: Env  # the env section
    # the reward section; None leaves reward and success to the environment
    reward: RewardConfig | None = None
    # the other sections of a sweep's control, as plain values; empty without a sweep
    sections: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_sweep(self) -> bool:
        """Whether it comes from a sweep file."""
        return bool(self.sections)


def choose(
    given: str, *, prompt: str | None, overrides: Sequence[str], defaults: Mapping[str, Any]
) -> Chosen:
    """Return the environment that the arguments name.

    Args:
        given: A kind of env, a sweep file (its control is played), a data set of reasoning-gym, or
            an import path.
        prompt: Replaces the sweep's; `compact` for a kind when None.
        overrides: `key=value` texts over the env section.
        defaults: Keys of the section of a kind that replace the schema's.

    Raises:
        InputError: Names every env, key or value that does not exist.

    """
    sections: dict[str, Any] = {}
    if given in KINDS:
        section = {"kind": given, "prompt": "compact", **defaults}
    elif given.endswith((".yaml", ".yml")):
        sections = dict(load_sweep(Path(given)).control.config)
        section = dict(sections.pop("env"))
    elif given.startswith(_GENERATED):
        section = {"kind": "verified", "source": given, "verifier": {"kind": "reasoning_gym"}}
    elif ":" in given:
        section = {"kind": "custom", "factory": given}
    else:
        what = f"{given!r} is not an environment."
        allowed = (
            f"Choose one of {', '.join(KINDS)}, a sweep file, reasoning_gym:NAME, or "
            "my_pkg.my_mod:MyEnv."
        )
        raise InputError(Problem("ENV", what, allowed, did_you_mean(given, KINDS)))
    asked = {} if prompt is None else {"prompt": prompt}
    section = _laid_over(section, asked | _values(section["kind"], overrides))
    reward = TypeAdapter(RewardConfig | None).validate_python(sections.pop("reward", None))
    return Chosen(_validated(section), reward, sections)


def _laid_over(section: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Return a section with the requested keys, without keys that these leave unread."""
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
        problems = problems_from(error, model, lambda path: ".".join(("env", *map(str, path))))
        raise InputError(list(problems)) from error


def refuse_chosen(given: str, chosen: Chosen) -> None:
    """Refuse custom code in what is played; `given` is how it was named."""
    reward = chosen.reward.model_dump() if chosen.reward else None
    paths = import_paths({"env": chosen.env.model_dump(), "reward": reward})
    refuse_paths((f"{given}: {key}", path) for key, path in paths)


def config_of(chosen: Chosen, model: str) -> TrialConfig:
    """Return the trial config of a policy: the sweep's, or one with the env's response limit."""
    from rltune.trainer.warmstart import RECIPES  # torch

    env, sections = chosen.env, dict(chosen.sections)
    if not chosen.is_sweep and env.prompt == "compact" and env.kind in RECIPES:
        sections["rollout"] = {"max_response_tokens": RECIPES[env.kind].max_tokens}
    policy = {**sections.get("policy", {}), "model": model}
    try:
        return TrialConfig.model_validate({**sections, "env": env.model_dump(), "policy": policy})
    except ValidationError as error:
        problems = problems_from(error, TrialConfig, lambda path: ".".join(map(str, path)))
        raise InputError(list(problems)) from error
