"""`rltune play`: an environment in the terminal, for a person, its solver, or a policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from rltune.cli.chat import PolicyPlayer
from rltune.cli.options import NoCustomCode
from rltune.cli.play_turns import Person, Player, Solver, closing, play_by_turns
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
from rltune.spec.trial_reference import is_reference
from rltune.spec.unread import without_unread
from rltune.spec.warmstart_data import TAUGHT_ENVS
from rltune.spec.yamlfile import parse_value
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.models.references import made_model
from rltune.trainer.tasks import env_maker
from rltune_envs.base import TextEnv
from rltune_envs.errors import CustomCodeError, EnvError
from rltune_envs.protocols import HasExpert, lack_of, supports

if TYPE_CHECKING:
    from rltune.policy.load import Policy

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


def play(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            help="sokoban, frozen_lake, multihop_qa or arithmetic; a sweep file (its control is "
            "played); a data set, reasoning_gym:NAME; or my_pkg.my_mod:MyEnv.",
            show_default=False,
        ),
    ],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first task.")] = 0,
    tasks: Annotated[
        int,
        typer.Option("--tasks", min=1, help="Number of tasks; their seeds count up from --seed."),
    ] = 1,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            metavar="NAME",
            help="compact or natural (default: the sweep's, else compact).",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a key of the env section; repeatable."
        ),
    ] = None,
    solver: Annotated[bool, typer.Option("--solver", help="Watch the perfect player.")] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="tiny|FOLDER|TRIAL",
            help="Watch a policy: tiny, a model's folder or hub id, or trial:RUN/TRIAL[@STEP]; "
            "tiny plays tasks like those it was trained on.",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            min=0.0,
            help="Sampling temperature; 0 is greedy (default: the sweep's, else 1.0).",
        ),
    ] = None,
    no_custom_code: NoCustomCode = False,
) -> None:
    """Play an environment by hand: type actions such as `Up Left`; q quits.

    Example:
      rltune play sokoban
      rltune play multihop_qa --solver --seed 7
      rltune play sokoban --policy tiny --tasks 20
      rltune play sweeps/frozenlake_slip.yaml --set success_rate=0.8
      rltune play reasoning_gym:chain_sum --set 'arguments={max_terms: 3}'

    """
    if solver and policy is not None:
        raise InputError(Problem("--solver, --policy", "both were given.", action="Give one."))
    if temperature is not None and policy is None:
        raise InputError(Problem("--temperature", "only a policy samples.", action="Add --policy."))
    taught = TAUGHT_ENVS.get(env, {}) if policy == "tiny" else {}
    chosen = choose(env, prompt=prompt, overrides=overrides or [], defaults=taught)
    if no_custom_code:
        _refuse_custom_code(env, chosen)
    try:
        with naming_custom_env(chosen.env):
            _play_all(
                chosen,
                _made(chosen),
                range(seed, seed + tasks),
                policy=policy,
                temperature=temperature,
                is_solver=solver,
            )
    except EnvError as error:
        raise _refused(error) from error


def _refuse_custom_code(given: str, chosen: Chosen) -> None:
    reward = chosen.reward.model_dump() if chosen.reward else None
    paths = import_paths({"env": chosen.env.model_dump(), "reward": reward})
    refuse_paths((f"{given}: {key}", path) for key, path in paths)


def _made(chosen: Chosen) -> TextEnv:
    """Return the environment."""
    try:
        return env_maker(chosen.env, chosen.reward)()
    except CustomCodeError as error:
        cause = error.__cause__
        is_refusal = isinstance(cause, EnvError | ValueError | TypeError)
        raise _refused(cause if is_refusal and cause else error) from error
    except (EnvError, ValueError, TypeError) as error:  # of the class: its arguments
        raise _refused(error) from error


def _refused(error: BaseException) -> InputError:
    return InputError(f"ENV: {' '.join(str(error).split())}")


def _play_all(
    chosen: Chosen,
    env: TextEnv,
    seeds: range,
    *,
    policy: str | None,
    temperature: float | None,
    is_solver: bool,
) -> None:
    """Play the tasks, until the person quits."""
    if is_solver and not supports(env, HasExpert):
        action = "Play yourself, or use --policy."
        raise InputError(Problem("--solver", f"{lack_of(env, HasExpert).lack}.", action=action))
    if policy is not None:
        config = _config(chosen, named_model(policy))
        watched = PolicyPlayer(
            _loaded(config), config, env, temperature=temperature, is_sweep=chosen.is_sweep
        )
        outcomes = [watched.play(seed) for seed in seeds]
    else:
        player: Player = Solver() if is_solver else Person()
        outcomes = []
        for seed in seeds:
            outcome = play_by_turns(env, seed, player)
            if outcome is None:
                break
            outcomes.append(outcome)
    if len(seeds) > 1:
        typer.echo(closing(env, outcomes))


def _loaded(config: TrialConfig) -> "Policy":
    """Return the policy of a config.

    Raises:
        InputError: It cannot be loaded, or cannot read what the env shows.

    """
    from rltune.policy.load import policy_of  # torch

    return policy_of(config, Path.cwd(), device="cpu")


def named_model(policy: str) -> str:
    """Return a policy as `policy.model` takes it; a trial's is exported first."""
    if not is_reference(policy):
        return policy
    return str(made_model(policy, Path.cwd(), where="--policy"))


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


def _config(chosen: Chosen, model: str) -> TrialConfig:
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
