"""`rltune warmstart`: make the tiny policy's weights again, or start the model of a sweep."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rltune.cli.options import NoCustomCode, Overrides, Profile, why_not_writable
from rltune.errors import InputError, Problem
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.warmstart_data import TAUGHT_ENVS
from rltune.trainer.preflight.references import require_usable

_TARGET = 0.4  # success from which a sweep's model learns


def warmstart(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV|FILE",
            help="sokoban, frozen_lake, multihop_qa or arithmetic; or a sweep file.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the new weights.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")] = 0,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            min=0.0,
            max=1.0,
            help="Success rate at which training stops (default: the recipe's; 0.4 for a sweep).",
        ),
    ] = None,
    max_steps: Annotated[
        int,
        typer.Option("--max-steps", min=1, help="Optimiser steps after which training gives up."),
    ] = 2000,
    lr: Annotated[
        float | None,
        typer.Option(
            "--lr",
            min=0.0,
            help="Learning rate for a sweep file (default: 0.001 up to 10 M parameters, else "
            "0.00001).",
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="CPU threads; the number changes the last bits.")
    ] = 1,
    profile: Profile = None,
    overrides: Overrides = None,
    no_custom_code: NoCustomCode = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty.")
    ] = False,
) -> None:
    """Train a policy on what is right to say, up to a deliberately moderate skill.

    ENV makes a tiny policy from nothing. FILE trains all weights of the control's model on the gold
    answers of its training tasks, for tasks of one turn.

    Example:
      rltune warmstart sokoban --out weights/sokoban
      rltune sweep sweeps/quickstart.yaml --set policy.model=weights/sokoban
      rltune warmstart my-task.yaml --out my-start --set policy.model=my-task-policy

    """
    is_sweep = env.endswith((".yaml", ".yml"))
    given = {"--lr": lr, "--profile": profile, "--set": overrides}
    problems = [*_problems(env, out, () if is_sweep else given.items(), force=force)]
    if problems:
        raise InputError(problems)
    if is_sweep:
        config = _control(Path(env), profile, overrides or (), no_custom_code=no_custom_code)
        wanted = _TARGET if target is None else target
        reached = _start(config, out, wanted, max_steps, lr=lr, seed=seed, threads=threads)
    else:
        wanted, reached = _make(env, out, target, max_steps, seed=seed, threads=threads)
    typer.echo(f"{out}: success {reached:.3f} on training tasks (target {wanted:g})")
    typer.echo(f"Use it: --set policy.model={out}")


def _problems(
    env: str, out: Path, unread: Iterable[tuple[str, object]], *, force: bool
) -> Iterator[Problem]:
    """Yield what the arguments contradict; `unread` are options that only a sweep file has."""
    if env not in TAUGHT_ENVS and not env.endswith((".yaml", ".yml")):
        allowed = f"Choose one of {', '.join(TAUGHT_ENVS)}, or a sweep file."
        yield Problem("ENV", f"{env!r} is not an environment.", allowed)
    for option, value in unread:
        if value is not None:
            yield Problem(option, "is for a sweep file.", action="Leave it out, or name the file.")
    if why := why_not_writable(out):  # else it is found out when all is trained
        yield Problem(f"--out {out}", f"{why}.", action="Give another one.")
    elif out.is_dir() and any(out.iterdir()) and not force:
        action = "Give another one, or --force to write into it."
        yield Problem(f"--out {out}", "the folder has files in it.", action=action)


def _control(
    file: Path, profile: str | None, overrides: Sequence[str], *, no_custom_code: bool
) -> TrialConfig:
    """Return the config of a sweep's control, once it is known to be usable."""
    loaded = load_sweep(file, profile=profile, overrides=overrides)
    require_usable(loaded, Path.cwd(), no_custom_code=no_custom_code)
    return TrialConfig.model_validate(loaded.control.config)


def _start(
    config: TrialConfig,
    out: Path,
    target: float,
    max_steps: int,
    *,
    lr: float | None,
    seed: int,
    threads: int,
) -> float:
    from rltune.trainer.warmstart_sweep import Lesson, warmstart_sweep

    lesson = Lesson(target, max_steps, lr=lr, seed=seed, threads=threads)
    return warmstart_sweep(config, Path.cwd(), out, lesson, say=typer.echo)


def _make(
    env: str, out: Path, target: float | None, max_steps: int, *, seed: int, threads: int
) -> tuple[float, float]:
    """Make a tiny policy; return the wanted success rate and the one that was reached."""
    from rltune.trainer.warmstart import RECIPES
    from rltune.trainer.warmstart import warmstart as train

    recipe = RECIPES[env] if target is None else replace(RECIPES[env], target=target)
    reached = train(
        env, out, seed=seed, max_steps=max_steps, threads=threads, say=typer.echo, recipe=recipe
    )
    return recipe.target, reached
