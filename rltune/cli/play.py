"""`rltune play`: an environment in the terminal, for a person, its solver, or a policy."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rltune.cli.options import NoCustomCode
from rltune.cli.play_config import Chosen, choose
from rltune.cli.play_turns import Person, Player, Solver, closing, play_by_turns
from rltune.errors import InputError, Problem
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.warmstart_data import TAUGHT_ENVS
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.tasks import env_maker
from rltune_envs.base import TextEnv
from rltune_envs.errors import CustomCodeError, EnvError


def play(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            help="sokoban, frozen_lake or multihop_qa; a sweep file (its control is played); or "
            "my_pkg.my_mod:MyEnv.",
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
            metavar="tiny|FOLDER",
            help="Watch a policy; tiny plays tasks like those it was trained on.",
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

    """
    if solver and policy is not None:
        raise InputError(Problem("--solver, --policy", "both were given.", action="Give one."))
    if temperature is not None and policy is None:
        raise InputError(Problem("--temperature", "only a policy samples.", action="Add --policy."))
    chosen = choose(env, prompt=prompt, overrides=overrides or [], defaults=_schooling(env, policy))
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
    found = import_paths({"env": chosen.env.model_dump(), "reward": reward})
    refuse_paths((f"{given}: {key}", path) for key, path in found)


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
    """Play the tasks until the last one, or until the person has had enough."""
    if policy is not None:
        from rltune.cli.play_policy import Watcher

        watcher = Watcher(chosen, policy, temperature=temperature, env=env)
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

    return TAUGHT_ENVS.get(kind, {})
