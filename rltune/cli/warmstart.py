"""`rltune warmstart`: make the tiny policy's weights again."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rltune.errors import InputError, Problem
from rltune.spec.warmstart_data import TAUGHT_ENVS


def warmstart(
    env: Annotated[
        str, typer.Argument(metavar="ENV", help="sokoban, frozen_lake, multihop_qa or arithmetic.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the new weights.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")] = 0,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            min=0.0,
            max=1.0,
            help="Success rate at which training stops (default: the recipe's).",
        ),
    ] = None,
    max_steps: Annotated[
        int,
        typer.Option("--max-steps", min=1, help="Optimiser steps after which training gives up."),
    ] = 2000,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="CPU threads; the number changes the last bits.")
    ] = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty.")
    ] = False,
) -> None:
    """Train a tiny policy on expert demonstrations, up to a deliberately moderate skill.

    Example:
      rltune warmstart sokoban --out weights/sokoban
      rltune sweep sweeps/quickstart.yaml --set policy.model=weights/sokoban

    """
    problems = []
    if env not in TAUGHT_ENVS:
        problems.append(
            Problem(
                "ENV", f"{env!r} is not an environment.", f"Choose one of {', '.join(TAUGHT_ENVS)}."
            )
        )
    if out.is_dir() and any(out.iterdir()) and not force:
        action = "Give another one, or --force to write into it."
        problems.append(Problem(f"--out {out}", "the folder has files in it.", action=action))
    if problems:
        raise InputError(problems)

    from rltune.trainer.warmstart import RECIPES
    from rltune.trainer.warmstart import warmstart as train

    recipe = RECIPES[env] if target is None else replace(RECIPES[env], target=target)
    reached = train(
        env, out, seed=seed, max_steps=max_steps, threads=threads, say=typer.echo, recipe=recipe
    )
    typer.echo(f"{out}: success {reached:.3f} on training tasks (target {recipe.target:g})")
    typer.echo(f"Use it: --set policy.model={out}")
