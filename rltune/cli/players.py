"""Who plays in `rltune play` turn by turn: a person at the terminal, or the env's own solver."""

import re
import sys
from typing import Protocol

import typer

from rltune.cli.play_screen import Outcome, drawn, ending, opening, turn_line
from rltune_envs.base import Step, TextEnv

_QUIT = ("q", "quit")
_SEPARATORS = re.compile(r"[\s,;|]+")


class Player(Protocol):
    """Chooses what to do in a turn."""

    def respond(self, env: TextEnv) -> str | None:
        """Return the response of this turn; None to stop."""

    @property
    def has_left(self) -> bool:
        """Whether no further task is wanted."""


class Solver:
    """The perfect player that every env has."""

    has_left = False

    def respond(self, env: TextEnv) -> str | None:
        """Return what the expert does; None when it sees no solution."""
        actions = env.expert_actions()
        if actions is None:
            typer.echo("The solver sees no solution that is left.")
            return None
        response = env.format_response(actions)
        typer.echo(f"> {response}")
        return response


class Person:
    """Somebody who types; or a script at standard input."""

    def __init__(self) -> None:
        self.has_left = False

    def respond(self, env: TextEnv) -> str | None:
        """Ask until a line says what to do; None at `q` or at the end of the input."""
        while True:
            line = self._line()
            if line is None or line.lower() in _QUIT:
                self.has_left = True
                return None
            response = response_of(env, line)
            if response is not None:
                return response
            typer.echo(hint(env))

    def _line(self) -> str | None:
        """Return the next line that is not blank; piped ones are shown, as typed ones are."""
        is_typed = sys.stdin.isatty()
        while True:
            if is_typed:
                typer.echo("> ", nl=False)
            line = sys.stdin.readline()
            if not line:
                typer.echo("")
                return None
            if line.strip():
                if not is_typed:
                    typer.echo(f"> {line.strip()}")
                return line.strip()


def response_of(env: TextEnv, line: str) -> str | None:
    """Return a typed line as a response of the protocol; None where it says nothing.

    A line that begins with a tag is a response already and stays as it is.

    Args:
        env: Knows its actions.
        line: Action words (`Up Left`, `search: words`).

    """
    if line.startswith("<"):
        return line
    names: tuple[str, ...] | None = getattr(env, "action_names", None)
    if names is not None:
        known = {name.lower(): name for name in names}
        words = [known.get(word.lower()) for word in _SEPARATORS.split(line) if word]
        found = [word for word in words if word is not None]
        return env.format_response(found) if found and len(found) == len(words) else None
    kind, _, text = line.partition(":")
    try:
        return env.format_response([f"{kind.strip().lower()}: {text.strip()}"])
    except ValueError:
        return None


def hint(env: TextEnv) -> str:
    """Return what may be typed."""
    names: tuple[str, ...] | None = getattr(env, "action_names", None)
    if names is None:
        return "Type `search: words`, `answer: words`, or q to stop."
    return f"Type one or more of {', '.join(names)}, or q to stop."


def play_by_turns(env: TextEnv, seed: int, player: Player) -> Outcome | None:
    """Play one task and print it; None when the player stopped before its end.

    A solver that sees no solution ends the task: it counts as not solved.
    """
    typer.echo(opening(env, seed, env.reset(seed=seed)))
    if isinstance(player, Person):
        typer.echo(f"\n{hint(env)}")
    rewards: list[float] = []
    step: Step | None = None
    while step is None or not (step.terminated or step.truncated):
        response = player.respond(env)
        if response is None:
            break
        step = env.step(response)
        rewards.append(step.reward)
        did = turn_line(step.actions, reward=step.reward, is_valid=step.is_valid, fault=step.fault)
        typer.echo(f"{did}\n{drawn(env, step.observation)}".rstrip() + "\n")
    if player.has_left:
        return None
    failure = step.failure_class.value if step is not None else "none"
    success = step is not None and step.success
    typer.echo(
        ending(
            env,
            seed,
            success=success,
            failure_class=failure,
            reward=sum(rewards),
            turns=len(rewards),
            auxiliary=step.auxiliary if step is not None else {},
        )
    )
    return Outcome(seed, success, failure)
