"""`rltune play`: an environment in the terminal, for a person, its solver, or a policy."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rltune.errors import InputError, Problem

if TYPE_CHECKING:
    from rltune.spec.schema_env import Env

_NOT_SET = ("kind", "prompt", "train_tasks", "split_seed")


def play(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV", help="sokoban, frozen_lake or multihop_qa.", show_default=False
        ),
    ],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first task.")] = 0,
    tasks: Annotated[
        int, typer.Option("--tasks", min=1, help="How many tasks, of this seed and the next ones.")
    ] = 1,
    prompt: Annotated[
        str, typer.Option("--prompt", metavar="NAME", help="What is shown: compact or natural.")
    ] = "compact",
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a key of the env section; may be repeated."
        ),
    ] = None,
    solver: Annotated[bool, typer.Option("--solver", help="Watch a perfect player.")] = False,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="tiny|FOLDER", help="Watch a policy; tiny in its school."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.0, help="Of the policy [1.0]; 0: greedy.")
    ] = None,
) -> None:
    """Play an environment by hand: action words a line, such as `Up Left`; q ends it."""
    from rltune_envs.errors import EnvError

    if solver and policy is not None:
        raise InputError(Problem("--solver, --policy", "both were given.", action="Give one."))
    if temperature is not None and policy is None:
        raise InputError(Problem("--temperature", "only a policy samples.", action="Add --policy."))
    config = _env_config(env, prompt, overrides or [], defaults=_schooling(env, policy))
    try:
        _play_all(
            config,
            range(seed, seed + tasks),
            policy=policy,
            temperature=1.0 if temperature is None else temperature,
            is_solver=solver,
        )
    except (EnvError, ValueError) as error:
        raise InputError(f"env {env}: {' '.join(str(error).split())}") from error


def _play_all(
    config: "Env", seeds: range, *, policy: str | None, temperature: float, is_solver: bool
) -> None:
    """Play the tasks until the last one, or until the person has had enough."""
    from rltune.cli.play_screen import closing
    from rltune.cli.players import Person, Player, Solver, play_by_turns
    from rltune.trainer.tasks import env_maker

    make_env = env_maker(config)
    env = make_env()
    if policy is not None:
        from rltune.cli.play_policy import Watcher

        watcher = Watcher(config, policy, temperature=temperature, make_env=make_env)
        outcomes = [watcher.play(seed) for seed in seeds]
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


def _schooling(kind: str, policy: str | None) -> Mapping[str, Any]:
    """Return the keys of the env section that a shipped policy has learnt with."""
    if policy != "tiny":
        return {}
    from rltune.spec.taught import TAUGHT_ENVS

    return TAUGHT_ENVS.get(kind, {})


def _env_config(
    kind: str, prompt: str, overrides: Sequence[str], *, defaults: Mapping[str, Any]
) -> "Env":
    """Return an env section: the keys that were set over the defaults.

    Raises:
        InputError: There is no such kind, key or value; all such are named.

    """
    from pydantic import ValidationError

    from rltune.spec.keys import did_you_mean
    from rltune.spec.problems import problems_from
    from rltune.spec.schema_env import FrozenLakeConfig, MultihopQaConfig, SokobanConfig
    from rltune.spec.yamlfile import parse_value

    models: dict[str, type[Env]] = {
        "sokoban": SokobanConfig, "frozen_lake": FrozenLakeConfig, "multihop_qa": MultihopQaConfig,
    }  # fmt: skip
    if kind not in models:
        allowed = f"Choose one of {', '.join(models)}."
        hint = did_you_mean(kind, models)
        raise InputError(Problem("ENV", f"{kind!r} is not an environment.", allowed, hint))
    model = models[kind]
    keys = [name for name in model.model_fields if name not in _NOT_SET]
    section: dict[str, Any] = {"kind": kind, "prompt": prompt, **defaults}
    problems = []
    for text in overrides:
        given, equals, value = text.partition("=")
        key = given.removeprefix("env.")
        if not equals or key not in keys:
            what = "is not of the form KEY=VALUE." if not equals else f"{kind} has no such key."
            allowed = f"Its keys are {', '.join(keys)}."
            problems.append(Problem(f"--set {text}", what, allowed, did_you_mean(key, keys)))
            continue
        try:
            section[key] = parse_value(value)
        except Exception as error:  # whatever the YAML reader says
            raise InputError(Problem(f"--set {text}", f"{value!r} is not a YAML value.")) from error
    if problems:
        raise InputError(problems)
    try:
        return model.model_validate(section)
    except ValidationError as error:
        found = problems_from(error, model, lambda path: ".".join(("env", *map(str, path))))
        raise InputError(list(found)) from error
