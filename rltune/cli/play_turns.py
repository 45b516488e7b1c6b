"""`rltune play` turn by turn: who chooses (a person or the env's solver), and what is printed."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import typer

from rltune_envs.base import FailureClass, Step, TextEnv
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.parse import SEPARATOR
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.verified import VerifiedEnv

_QUIT = ("q", "quit")
_SEPARATORS = re.compile(r"[\s,;|]+")
LEGENDS = {
    SokobanEnv: "# wall, _ floor, O target, X box, √ box on target, P you, S you on target",
    FrozenLakeEnv: "_ ice, O hole, G goal, P you, X you in a hole, √ you on the goal",
}
_WHY = {
    FailureClass.NONE: "it was stopped",
    FailureClass.WRONG: "the outcome is not the right one",
    FailureClass.LOST: "no solution was left",
    FailureClass.UNFINISHED: "a limit ended it before any outcome",
    FailureClass.MALFORMED: "a limit ended it and the last response could not be read",
    FailureClass.FAULT: "something outside the player failed",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one task ended.

    Attributes:
        seed: Of the task.
        success: It was solved.
        failure_class: Why it was not.

    """

    seed: int
    success: bool
    failure_class: str


def inner(env: TextEnv) -> TextEnv:
    """Return the environment that a rubric is wrapped around; one without stays as it is."""
    return env.inner if isinstance(env, VerifiedEnv) else env


def drawn(env: TextEnv, observation: str) -> str:
    """Return an observation for people: a compact board is one line to a policy, rows to them."""
    width = _width(inner(env))
    if not width:
        return observation.strip()
    rows = [observation[start : start + width] for start in range(0, len(observation), width)]
    return "\n".join(rows)


def _width(env: TextEnv) -> int:
    """Return the length of a compact board's rows; 0 where there is no such board."""
    if isinstance(env, SokobanEnv) and env.is_compact:
        return env.level.width - 2
    if isinstance(env, FrozenLakeEnv) and env.is_compact:
        return env.size
    return 0


def opening(env: TextEnv, seed: int, observation: str) -> str:
    """Return what is shown when a task begins."""
    task, game = env.task(seed), inner(env)
    unit = env.difficulty_unit.removesuffix("s" if task.difficulty == 1 else "")
    lines = [f"{task.task_id} (seed {seed}), difficulty {task.difficulty} {unit}"]
    if env.system_prompt:
        lines.append(env.system_prompt)
    elif type(game) in LEGENDS:
        lines.append(LEGENDS[type(game)])
    return "\n".join([*lines, "", drawn(env, observation)])


def turn(env: TextEnv, step: Step) -> str:
    """Return what one turn did, and what is seen after it."""
    return f"{turn_line(step)}\n{drawn(env, step.observation)}".rstrip() + "\n"


def turn_line(step: Step) -> str:
    """Return what one turn did, and what of it was refused."""
    done = ", ".join(step.actions) or "nothing was executed"
    odd = "" if step.is_valid else " (the response could not be read, or not all of it)"
    over = f" ({step.n_over_limit} more not executed: over a limit)" if step.n_over_limit else ""
    failed = f" (fault: {step.fault})" if step.fault else ""
    return f"-> {done}{odd}{over}{failed}, reward {step.reward:+.4g}"


def ending(
    env: TextEnv, outcome: Outcome, *, reward: float, turns: int, auxiliary: Mapping[str, float]
) -> str:
    """Return how an episode ended, and why."""
    text = f"{_why(outcome)}; reward {reward:.4g} in {turns} turn{'' if turns == 1 else 's'}."
    if auxiliary:
        text += "\n" + ", ".join(f"{name} {value:.3g}" for name, value in auxiliary.items())
    if isinstance(inner(env), MultihopQaEnv) and not outcome.success:
        text += f"\nThe answer: {' | '.join(env.gold(outcome.seed)['answers'])}"
    return f"{text}\n"


def _why(outcome: Outcome) -> str:
    failure = FailureClass(outcome.failure_class)
    if failure is FailureClass.FAULT:  # whatever else the environment says
        return f"It does not count: {failure}, {_WHY[failure]}"
    if outcome.success:
        return "Solved"
    named = "" if failure is FailureClass.NONE else f"{failure}, "
    return f"Not solved: {named}{_WHY[failure]}"


def closing(env: TextEnv, outcomes: Sequence[Outcome]) -> str:
    """Return the share of several tasks that was solved, between its floor and its ceiling."""
    counted = [one for one in outcomes if one.failure_class != FailureClass.FAULT]
    faults = len(outcomes) - len(counted)
    left_out = f" {faults} more had a fault and do not count." if faults else ""
    if not counted:
        return f"No task was played to its end.{left_out}"
    n, solved = len(counted), sum(one.success for one in counted)
    floor = sum(env.random_success_probability(one.seed) for one in counted) / n
    ceiling = sum(env.optimal_success_probability(one.seed) for one in counted) / n
    return (
        f"Solved {solved} of {n} task{'' if n == 1 else 's'}: {solved / n:.3f}. On these a random "
        f"player solves {floor:.3f}, a perfect one {ceiling:.3f}.{left_out}"
    )


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
