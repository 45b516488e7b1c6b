"""What `rltune play` prints: boards in rows, what a turn did, why an episode ended. Plain text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltune_envs.base import FailureClass, TextEnv
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.sokoban import SokobanEnv

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
    FailureClass.FAULT: "something outside the player failed; it does not count",
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


def drawn(env: TextEnv, observation: str) -> str:
    """Return an observation for people: a compact board is one line to a policy, rows to them."""
    width = _width(env)
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
    task = env.task(seed)
    lines = [f"{task.task_id} (seed {seed}), difficulty {task.difficulty} {env.difficulty_unit}"]
    if env.system_prompt:
        lines.append(env.system_prompt)
    elif type(env) in LEGENDS:
        lines.append(LEGENDS[type(env)])
    return "\n".join([*lines, "", drawn(env, observation)])


def turn_line(actions: Sequence[str], *, reward: float, is_valid: bool, fault: str) -> str:
    """Return what one turn did."""
    done = ", ".join(actions) or "nothing was executed"
    odd = "" if is_valid else " (the response could not be read, or not all of it)"
    failed = f" (fault: {fault})" if fault else ""
    return f"-> {done}{odd}{failed}, reward {reward:+.4g}"


def ending(
    env: TextEnv,
    seed: int,
    *,
    success: bool,
    failure_class: str,
    reward: float,
    turns: int,
    auxiliary: Mapping[str, float],
) -> str:
    """Return how an episode ended, and why."""
    why = (
        "solved" if success else f"not solved: {failure_class}, {_WHY[FailureClass(failure_class)]}"
    )
    text = f"{why}; reward {reward:.4g} in {turns} turn{'' if turns == 1 else 's'}."
    if auxiliary:
        text += "\n" + ", ".join(f"{name} {value:.3g}" for name, value in auxiliary.items())
    if isinstance(env, MultihopQaEnv) and not success:
        text += f"\nThe answer: {' | '.join(env.gold(seed)['answers'])}"
    return f"{text[0].upper()}{text[1:]}\n"


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
        f"Solved {solved} of {n} tasks: {solved / n:.3f}. On these a random player solves "
        f"{floor:.3f}, a perfect one {ceiling:.3f}.{left_out}"
    )
