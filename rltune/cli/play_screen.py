"""What `rltune play` prints: boards in rows, what a turn did, why an episode ended. Plain text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltune_envs.base import FailureClass, Step, TextEnv
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.verified import VerifiedEnv

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
    return env.env if isinstance(env, VerifiedEnv) else env


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
