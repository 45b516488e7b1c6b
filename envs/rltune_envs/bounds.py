"""Floor and ceiling of a split: exact where the environment knows them, measured elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from rltune_envs.at_once import of_each
from rltune_envs.base import Task, TextEnv
from rltune_envs.errors import CustomCodeError, TaskError
from rltune_envs.faults import retry, too_many_faults
from rltune_envs.protocols import HasCeiling, HasFloor, HasRandomPlayer, require, supports
from rltune_envs.streams import stream

EPISODES = 32
"""Random episodes per task, where a floor is measured."""


class FloorKind(StrEnum):
    """How the floor is known."""

    EXACT = "exact"  # the environment computes it
    MEASURED = "measured"  # from episodes of the environment's random player
    START = "start"  # unknown: the first gate, of the untrained policy, is all there is


@dataclass(frozen=True, slots=True)
class Floor:
    """Success of the random player on a split."""

    kind: FloorKind  # how it is known
    rate: float | None = None  # expected or measured success rate; None where unknown
    # of the measured episodes without a fault; None where nothing was measured
    successes: int | None = None
    n: int | None = None  # number of these episodes

    @staticmethod
    def from_json(data: Mapping[str, Any] | None) -> "Floor | None":
        """Read the fields of a floor as plain JSON values."""
        return None if data is None else Floor(**{**data, "kind": FloorKind(data["kind"])})


def floor_of(
    env: TextEnv, tasks: Sequence[Task], *, others: Sequence[TextEnv] = ()
) -> Floor | None:
    """Return the mean floor; None without tasks. The environment's running episode is lost.

    Where it is measured, `others`, which are equal, play some of the tasks at the same time.

    Raises:
        TaskError: Too many of the random episodes of a task had a fault.

    """
    if not tasks:
        return None
    if supports(env, HasFloor):
        return Floor(FloorKind.EXACT, _mean(env.random_success_probability, tasks))
    if not supports(env, HasRandomPlayer):
        return Floor(FloorKind.START)
    outcomes = of_each(_random_episodes, [env, *others], tasks)
    won = [success for of_task in outcomes for success in of_task]
    return Floor(FloorKind.MEASURED, sum(won) / len(won), sum(won), len(won))


def ceiling_of(env: TextEnv, tasks: Sequence[Task]) -> float | None:
    """Return the mean exact ceiling; None without tasks, and where it is unknown."""
    if not tasks or not supports(env, HasCeiling):
        return None
    return _mean(env.optimal_success_probability, tasks)


def _mean(probability: Callable[[int], float], tasks: Sequence[Task]) -> float:
    return sum(retry(partial(probability, task.seed)) for task in tasks) / len(tasks)


def _random_episodes(env: TextEnv, task: Task) -> list[bool]:
    """Return the outcomes of random episodes of a task, without those that had a fault.

    Raises:
        TaskError: Too many had one.

    """
    seed = task.seed
    outcomes = [_play_randomly(env, seed, index) for index in range(EPISODES)]
    faults = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if too_many_faults(len(faults), len(outcomes)):
        raise TaskError(
            f"{len(faults)} of {len(outcomes)} random episodes of the task of seed {seed} had a "
            f"fault, so its floor cannot be measured; the first: {faults[0]}. Repair it"
        )
    return [outcome for outcome in outcomes if not isinstance(outcome, str)]


def _play_randomly(env: TextEnv, seed: int, index: int) -> bool | str:
    """Return whether a random episode is a success, or its fault."""
    rng, player = stream(f"random floor/{seed}/{index}"), require(env, HasRandomPlayer)
    fault = ""
    try:
        env.noise_seed = index
        env.reset(seed=seed)
        while True:
            step = env.step(player.format_response(player.random_actions(rng)))
            fault = fault or step.fault
            if step.has_ended:
                return fault or step.success
    except CustomCodeError as error:
        return str(error)
