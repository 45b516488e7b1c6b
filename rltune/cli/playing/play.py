"""`rltune play`: an environment in the terminal, for a person, its solver, or a policy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltune.cli.options import NoCustomCode
from rltune.cli.playing.choose import Chosen, choose, config_of, refuse_chosen
from rltune.cli.playing.policy import PolicyPlayer
from rltune.cli.playing.turns import Person, Player, Solver, closing, play_by_turns
from rltune.errors import InputError, Problem
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.trial_reference import is_reference
from rltune.spec.warmstart_data import TAUGHT_ENVS
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.models.references import made_model
from rltune.trainer.tasks import env_maker
from rltune_envs.base import TextEnv
from rltune_envs.errors import CustomCodeError, EnvError
from rltune_envs.protocols import HasExpert, lack_of, supports

if TYPE_CHECKING:
    from rltune.policy.load import Policy


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
        refuse_chosen(env, chosen)
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
        config = config_of(chosen, named_model(policy))
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
