"""`rltune play` turn by turn: the players, and what is printed."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import typer

from rltune.report.levels import levels_sentence
from rltune_envs.base import FailureClass, Step, TextEnv
from rltune_envs.bounds import ceiling_of, floor_of
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.parse import SEPARATOR
from rltune_envs.protocols import HasExpert, HasGold, WritesActions, require, supports
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.verified_task import VerifiedTaskEnv

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
    """Outcome of the task of a seed: solved, or why not."""

    seed: int
    success: bool
    failure_class: str


def drawn(env: TextEnv, observation: str) -> str:
    """Return an observation for people: a compact board, one line for a policy, becomes rows."""
    game = env.unwrapped
    if not (isinstance(game, SokobanEnv | FrozenLakeEnv) and game.is_compact):
        return observation.strip()
    width = game.size if isinstance(game, FrozenLakeEnv) else game.level.width - 2
    return "\n".join(observation[i : i + width] for i in range(0, len(observation), width))


def opening(env: TextEnv, seed: int, observation: str) -> str:
    """Return the text at the start of a task."""
    task = env.task(seed)
    lines = [f"{task.task_id} (seed {seed})"]
    if task.difficulty is not None:
        unit = env.difficulty_unit.removesuffix("s" if task.difficulty == 1 else "")
        lines[0] += f", difficulty {task.difficulty} {unit}"
    if rules := env.system_prompt or LEGENDS.get(type(env.unwrapped), ""):
        lines.append(rules)
    return "\n".join([*lines, "", drawn(env, observation)])


def turn(env: TextEnv, step: Step) -> str:
    """Return what one turn did, and the observation after it."""
    line = turn_line(step, has_actions=supports(env, WritesActions))
    return f"{line}\n{drawn(env, step.observation)}".rstrip() + "\n"


def turn_line(step: Step, *, has_actions: bool = True) -> str:
    """Return what one turn did, and which part of it was refused."""
    done = ", ".join(step.actions) or ("nothing was executed" if has_actions else "read")
    odd = "" if step.is_valid else " (the response could not be read, or not all of it)"
    over = f" ({step.n_over_limit} more not executed: over a limit)" if step.n_over_limit else ""
    failed = f" (fault: {step.fault})" if step.fault else ""
    return f"-> {done}{odd}{over}{failed}, reward {step.reward:+.4g}"


def _ending(env: TextEnv, outcome: Outcome, steps: Sequence[Step]) -> str:
    """Return the text at the end of an episode."""
    reward, turns = sum(step.reward for step in steps), len(steps)
    text = f"{_why(outcome)}; reward {reward:.4g} in {turns} turn{'' if turns == 1 else 's'}."
    if steps and steps[-1].auxiliary:
        measures = steps[-1].auxiliary.items()
        text += "\n" + ", ".join(f"{name} {value:.3g}" for name, value in measures)
    if supports(env, HasGold) and not outcome.success:
        answers = env.gold(outcome.seed).get("answers")
        if isinstance(answers, list) and answers:
            text += f"\nThe answer: {' | '.join(map(str, answers))}"
    return f"{text}\n"


def _why(outcome: Outcome) -> str:
    failure = FailureClass(outcome.failure_class)
    if failure is FailureClass.FAULT:  # whatever else the environment says
        return f"It does not count: {failure}, {_WHY[failure]}"
    if outcome.success:
        return "Solved"
    named = "" if failure is FailureClass.NONE else f"{failure}, "
    return f"Not solved: {named}{_WHY[failure]}"


class Player(Protocol):
    """Chooses what to do in a turn."""

    def respond(self, env: TextEnv) -> str | None:
        """Return the response of this turn; None to stop."""

    @property
    def has_left(self) -> bool:
        """Whether the player quit."""


class Solver:
    """The env's perfect player."""

    has_left = False

    def respond(self, env: TextEnv) -> str | None:
        """Return the expert's response; None if it sees no solution."""
        expert = require(env, HasExpert)
        if (actions := expert.expert_actions()) is None:
            typer.echo("The solver finds no solution from here.")
            return None
        response = expert.format_response(actions)
        typer.echo(f"> {response}")
        return response


class Person:
    """A person who types, or a script on standard input."""

    def __init__(self) -> None:
        self.has_left = False

    def respond(self, env: TextEnv) -> str | None:
        """Ask until a line names an action; None at `q` or at the end of the input."""
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
        is_typed, text = sys.stdin.isatty(), ""
        while not text:
            if is_typed:
                typer.echo("> ", nl=False)
            line = sys.stdin.readline()
            if not line:
                typer.echo("")
                return None
            text = line.strip()
        if not is_typed:
            typer.echo(f"> {text}")
        return text


def response_of(env: TextEnv, line: str) -> str | None:
    """Return a typed line as a response of the protocol; None if it names no action.

    Args:
        env: Knows its actions; the line of one without any is the response itself.
        line: Action words (`Up Left`, `search: words`), or a response, which begins with a tag.

    """
    if line.startswith("<"):
        return line
    if isinstance(env.unwrapped, VerifiedTaskEnv) or not supports(env, WritesActions):
        return line if line.startswith(env.response_prefix) else env.response_prefix + line
    actions = _actions(env.unwrapped, line)
    try:
        return env.format_response(actions) if actions else None
    except ValueError:
        return None


def _actions(env: TextEnv, line: str) -> list[str]:
    """Return the actions that a line names; none if one of its words is not an action."""
    if isinstance(env, MultihopQaEnv):
        kind, _, text = line.partition(":")
        return [f"{kind.strip().lower()}: {text.strip()}"]
    names = getattr(env, "action_names", None)
    if names is None:
        return [part.strip() for part in line.split(SEPARATOR) if part.strip()]
    known = {name.lower(): name for name in names}
    words = [word.lower() for word in _SEPARATORS.split(line) if word]
    return [known[word] for word in words] if known.keys() >= set(words) else []


def hint(env: TextEnv) -> str:
    """Return what may be typed."""
    if isinstance(env.unwrapped, MultihopQaEnv):
        return "Type `search: words`, `answer: words`, or q to stop."
    if isinstance(env.unwrapped, VerifiedTaskEnv) or not supports(env, WritesActions):
        return "Type a response, or q to stop."
    names = getattr(env.unwrapped, "action_names", None)
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
    while not (steps and steps[-1].has_ended):
        response = player.respond(env)
        if response is None:
            break
        steps.append(env.step(response))
        typer.echo(turn(env, steps[-1]))
    return None if player.has_left else finish(env, seed, steps)


def finish(
    env: TextEnv, seed: int, steps: Sequence[Step], *, failure_class: str | None = None
) -> Outcome:
    """Print and return how an episode ended; one with a fault in any turn does not count.

    Args:
        env: What was played.
        seed: Of the task.
        steps: All of the episode.
        failure_class: Why it failed; None: as the last step says.

    """
    last = steps[-1] if steps else None
    if failure_class is None:
        failure_class = FailureClass.NONE if last is None else last.failure_class
    if any(step.fault for step in steps):
        failure_class = FailureClass.FAULT
    outcome = Outcome(seed, last is not None and last.success, FailureClass(failure_class).value)
    typer.echo(_ending(env, outcome, steps))
    return outcome


def closing(env: TextEnv, outcomes: Sequence[Outcome]) -> str:
    """Return the success rate over several tasks, with its floor and ceiling."""
    counted = [one for one in outcomes if one.failure_class != FailureClass.FAULT]
    faults = len(outcomes) - len(counted)
    left_out = f" {faults} more had a fault and do not count." if faults else ""
    if not counted:
        return f"No task was played to its end.{left_out}"
    n, solved = len(counted), sum(one.success for one in counted)
    rate = f"Solved {solved} of {n} task{'' if n == 1 else 's'}: {solved / n:.3f}."
    tasks = [env.task(one.seed) for one in counted]
    levels = levels_sentence(floor_of(env, tasks), ceiling_of(env, tasks), where="On these")
    return f"{rate} {levels}{left_out}"
