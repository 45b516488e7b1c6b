"""Who plays in `rltune play` turn by turn: a person at the terminal, or the env's own solver."""

import re
import sys
from collections.abc import Sequence
from typing import Protocol

import typer

from rltune.cli.play_screen import Outcome, ending, inner, opening, turn
from rltune_envs.base import FailureClass, Step, TextEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.parse import SEPARATOR

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
    actions = _actions(inner(env), line)
    try:
        return env.format_response(actions) if actions else None
    except ValueError:
        return None


def _actions(env: TextEnv, line: str) -> list[str]:
    """Return the actions that a line names; none where a word of it is no action."""
    if isinstance(env, MultihopQaEnv):
        kind, _, text = line.partition(":")
        return [f"{kind.strip().lower()}: {text.strip()}"]
    names = _names(env)
    if names is None:
        return [part.strip() for part in line.split(SEPARATOR) if part.strip()]
    known = {name.lower(): name for name in names}
    words = [word.lower() for word in _SEPARATORS.split(line) if word]
    return [known[word] for word in words] if known.keys() >= set(words) else []


def _names(env: TextEnv) -> Sequence[str] | None:
    """Return the names of an env's actions; None where it has no list of them."""
    return getattr(env, "action_names", None)


def hint(env: TextEnv) -> str:
    """Return what may be typed."""
    game = inner(env)
    if isinstance(game, MultihopQaEnv):
        return "Type `search: words`, `answer: words`, or q to stop."
    names = _names(game)
    if names is None:
        return f"Type an action, several with {SEPARATOR} between, or q to stop."
    return f"Type one or more of {', '.join(names)}, or q to stop."


def play_by_turns(env: TextEnv, seed: int, player: Player) -> Outcome | None:
    """Play one task and print it; None when the player stopped before its end.

    A solver that sees no solution ends the task: it counts as not solved.
    """
    typer.echo(f"{opening(env, seed, env.reset(seed=seed))}\n")
    if isinstance(player, Person):
        typer.echo(hint(env))
    steps: list[Step] = []
    while not is_over(steps):
        response = player.respond(env)
        if response is None:
            break
        steps.append(env.step(response))
        typer.echo(turn(env, steps[-1]))
    return None if player.has_left else finish(env, seed, steps)


def is_over(steps: Sequence[Step]) -> bool:
    """Tell whether the last step ended the episode."""
    return bool(steps) and (steps[-1].terminated or steps[-1].truncated)


def finish(
    env: TextEnv, seed: int, steps: Sequence[Step], *, failure_class: str | None = None
) -> Outcome:
    """Print and return how an episode ended; one with a fault in any turn does not count.

    Args:
        env: What was played.
        seed: Of the task.
        steps: All of the episode.
        failure_class: Why it is no success; None where the steps alone tell.

    """
    last = steps[-1] if steps else None
    if failure_class is None:
        failure_class = FailureClass.NONE if last is None else last.failure_class
    if any(step.fault for step in steps):
        failure_class = FailureClass.FAULT
    outcome = Outcome(seed, last is not None and last.success, FailureClass(failure_class).value)
    reward, auxiliary = sum(step.reward for step in steps), last.auxiliary if last else {}
    typer.echo(ending(env, outcome, reward=reward, turns=len(steps), auxiliary=auxiliary))
    return outcome
