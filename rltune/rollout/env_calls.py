"""What is asked of an environment in an episode, by any thread; custom code may fail there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Self, TypeVar

from rltune.types import Distance
from rltune_envs.base import FailureClass, GoldResponse, Step, TextEnv
from rltune_envs.errors import CustomCodeError, SearchLimitError
from rltune_envs.protocols import HasDistance, HasGoldResponse, require

T = TypeVar("T")

_UNKNOWN = -1  # a distance that takes too long to find out


@dataclass(frozen=True, slots=True)
class Started:
    """An environment, and what it says first."""

    env: TextEnv
    observation: str


def start(
    make_env: Callable[[], TextEnv], *, seed: int, noise_seed: int
) -> Started | CustomCodeError:
    """Make an environment and start a task; return the error of custom code that failed."""
    try:
        env = make_env()
        env.noise_seed = noise_seed
        return Started(env, env.reset(seed=seed))
    except CustomCodeError as error:
        return error


def first_alone(starts: Mapping[int, T]) -> tuple[dict[int, T], dict[int, T]]:
    """Return the first start, and all others, to be done after it.

    What environments share from the start, such as the rows of a file, is then made once.
    """
    items = starts.items()
    return dict(islice(items, 1)), dict(islice(items, 1, None))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an environment made of a response; gold and distance where asked for and known."""

    step: Step
    gold: GoldResponse | None = None
    distance: Distance | None = None

    @classmethod
    def of_fault(cls, error: CustomCodeError) -> Self:
        """Return the outcome of a turn in which the environment failed; it ends the episode."""
        return cls(Step("", truncated=True, failure_class=FailureClass.FAULT, fault=str(error)))


def outcome_of(env: TextEnv, response: str, *, gold: bool, distance: bool) -> Outcome:
    """Step.

    Args:
        env: Steps.
        response: The whole text of a turn.
        gold: Whether to ask what a perfect player would say.
        distance: Whether to ask for the distances to go around the step.

    """
    try:
        gold_response = _gold(env) if gold else None
        before = _distance(env) if distance else _UNKNOWN
        step = env.step(response)
        after = _distance(env) if distance else _UNKNOWN
    except CustomCodeError as error:
        return Outcome.of_fault(error)
    is_known = _UNKNOWN not in (before, after)
    return Outcome(step, gold_response, Distance(before, after) if is_known else None)


def _gold(env: TextEnv) -> GoldResponse | None:
    """Return what a perfect player would say; None where it takes too long to find."""
    try:
        return require(env, HasGoldResponse).gold_response() or GoldResponse("", (), "")
    except SearchLimitError:
        return None


def _distance(env: TextEnv) -> int | None:
    try:
        return require(env, HasDistance).distance_to_go()
    except SearchLimitError:
        return _UNKNOWN
