"""The same tasks played by one policy or by two, and what came of it."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import typer

from rltune.cli.playing.policy import PolicyPlayer
from rltune.cli.playing.turns import Outcome
from rltune_envs.base import Step


@dataclass(frozen=True, slots=True)
class Side:
    """What one of the policies did."""

    name: str  # `before` and `after` training; `base` and `model` of a folder
    step: int | None  # training steps done; None of a folder that does not say
    tasks: list[dict[str, Any]]  # one for each task, with its turns

    @property
    def title(self) -> str:
        """How the text calls it: `before training, step 0`."""
        words = f"{self.name} training" if self.name in ("before", "after") else self.name
        return words if self.step is None else f"{words}, step {self.step}"


Contestant = tuple[str, int | None, PolicyPlayer]
"""A side's name and step, and who plays it."""


def play_sides(
    players: Sequence[Contestant], seeds: Sequence[int], *, is_quiet: bool
) -> list[Side]:
    """Play each task by every player in turn; print them unless it is quiet."""
    sides = [Side(name, step, []) for name, step, _ in players]
    for seed in seeds:
        for side, (_, _, player) in zip(sides, players, strict=True):
            with _silence(is_quiet):
                typer.echo(f"=== {side.title} ===")
                outcome = player.play(seed)
            side.tasks.append(_told(outcome, player.turns))
    return sides


@contextmanager
def _silence(is_quiet: bool) -> Iterator[None]:
    if not is_quiet:
        yield
        return
    with redirect_stdout(io.StringIO()):
        yield


def _told(outcome: Outcome, turns: Sequence[tuple[str, Step]]) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        "success": outcome.success,
        "failure_class": outcome.failure_class,
        "reward": sum(step.reward for _, step in turns),
        "turns": [
            {"response": response, "reward": step.reward, "observation": step.observation}
            for response, step in turns
        ],
    }


def summary(sides: Sequence[Side]) -> Iterator[str]:
    """Yield a line for each side: `before training, step 0: solved 1 of 3, reward 0.4`."""
    for side in sides:
        n, solved = len(side.tasks), sum(task["success"] for task in side.tasks)
        reward = sum(task["reward"] for task in side.tasks) / n
        yield f"{side.title}: solved {solved} of {n}, mean reward {reward:.4g}"
