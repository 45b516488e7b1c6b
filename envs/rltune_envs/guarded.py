"""Environments and scores of a user's behind the guard: a failure is one error, checked results.

`guard` makes the calls. What comes back is of the types that the contract names, with finite
numbers, or a `CustomCodeError` says what is wrong with it.
"""

import copy
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, TypeVar

from rltune_envs.base import FailureClass, GoldResponse, Step, Task, TextEnv
from rltune_envs.characters import half_character
from rltune_envs.errors import CustomCodeError
from rltune_envs.guard import WrongResultError, call, limit_of
from rltune_envs.rewards import Attempt, Score

T = TypeVar("T")


class GuardedEnv(TextEnv):
    """An environment of a user's, each call of which is guarded.

    The class attributes, the system prompt and the response prefix are read when it is made, and
    the last two again after each reset and step.

    Args:
        make: Makes the environment.
        name: Names it in errors: its class.
        module: Where its code is.
        limit_s: Longest that a call may take, in seconds.

    Raises:
        CustomCodeError: It cannot be made, or is not a `TextEnv`.

    """

    def __init__(
        self, make: Callable[[], object], *, name: str, module: str, limit_s: float
    ) -> None:
        self._name, self._module, self._limit_s = name, module, limit_s
        self._noise_seed = 0
        made = self._call("()", make)
        if not isinstance(made, TextEnv):
            cause = (
                f"it makes a {type(made).__name__}, not a rltune_envs.base.TextEnv; derive the "
                "class from TextEnv"
            )
            raise CustomCodeError(f"env {name}", cause)
        self.inner: TextEnv = made
        self._call("", self._read)

    def _read(self) -> None:
        inner = self.inner
        self.is_deterministic = bool(inner.is_deterministic)
        self.difficulty_unit = _of_type(inner.difficulty_unit, str, "difficulty_unit")
        self.auxiliary_names = tuple(inner.auxiliary_names)
        self._read_frame()

    def _read_frame(self) -> None:
        self._system_prompt = _of_type(self.inner.system_prompt, str, "system_prompt")
        self._response_prefix = _of_type(self.inner.response_prefix, str, "response_prefix")

    def _call(self, method: str, function: Callable[[], T]) -> T:
        what = f"env {self._name}{method and f'.{method}' if method != '()' else '()'}"
        made: Any = call(what, function, limit_s=self._limit_s, module=self._module)
        return made  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that is the environment's own, such as `action_names`."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> "GuardedEnv":
        """Return an independent copy; an environment may be unable to be copied."""
        apart = copy.copy(self)
        apart.inner = self._call("__deepcopy__()", lambda: copy.deepcopy(self.inner, memo))
        return apart

    @property
    def system_prompt(self) -> str:
        """The environment's."""
        return self._system_prompt

    @property
    def response_prefix(self) -> str:
        """The environment's."""
        return self._response_prefix

    @property
    def noise_seed(self) -> int:
        """What names its luck besides the task; it is given to it at the next reset."""
        return self._noise_seed

    @noise_seed.setter
    def noise_seed(self, value: int) -> None:
        self._noise_seed = value

    def reset(self, *, seed: int) -> str:
        """Start the task of `seed`."""

        def begin() -> str:
            self.inner.noise_seed = self._noise_seed
            shown = _of_type(self.inner.reset(seed=seed), str, "an observation")
            self._read_frame()
            return shown

        return self._call("reset()", begin)

    def step(self, response: str) -> Step:
        """Play one turn."""

        def play() -> Step:
            step = _sound_step(self.inner.step(response), self.auxiliary_names)
            self._read_frame()
            return step

        return self._call("step()", play)

    def task(self, seed: int) -> Task:
        """Describe the task of `seed`."""
        return self._call("task()", lambda: _sound_task(self.inner.task(seed), seed))

    def format_response(self, actions: Sequence[str]) -> str:
        """Write actions as the environment does."""
        return self._call(
            "format_response()",
            lambda: _of_type(self.inner.format_response(actions), str, "a response"),
        )

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return what its perfect player does."""

        def ask() -> tuple[str, ...] | None:
            found = self.inner.expert_actions()
            return None if found is None else _names(found)

        return self._call("expert_actions()", ask)

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Return what its random player does."""
        return self._call("random_actions()", lambda: _names(self.inner.random_actions(rng)))

    def random_success_probability(self, seed: int) -> float:
        """Return its floor."""
        return self._call(
            "random_success_probability()",
            lambda: _probability(self.inner.random_success_probability(seed)),
        )

    def optimal_success_probability(self, seed: int) -> float:
        """Return its ceiling."""
        return self._call(
            "optimal_success_probability()",
            lambda: _probability(self.inner.optimal_success_probability(seed)),
        )

    def shortest_responses(self) -> tuple[str, ...]:
        """Return its shortest well-formed responses."""
        return self._call("shortest_responses()", lambda: _names(self.inner.shortest_responses()))

    def cell_symbols(self) -> str:
        """Return the symbols of its board."""
        return self._call(
            "cell_symbols()", lambda: _of_type(self.inner.cell_symbols(), str, "symbols")
        )

    def gold(self, seed: int) -> Mapping[str, Any]:
        """Return what a verifier may know about the task of `seed`."""
        return self._call("gold()", lambda: _mapping(self.inner.gold(seed), "gold"))

    def distance_to_go(self) -> int | None:
        """Return its distance to go."""

        def ask() -> int | None:
            found = self.inner.distance_to_go()
            return None if found is None else int(_number(found, "a distance"))

        return self._call("distance_to_go()", ask)

    def gold_response(self) -> GoldResponse | None:
        """Return what its perfect player says."""

        def ask() -> GoldResponse | None:
            found = self.inner.gold_response()
            return None if found is None else _sound_gold(found)

        return self._call("gold_response()", ask)


def guarded_env(factory: Callable[..., object], path: str, arguments: Mapping[str, Any]) -> TextEnv:
    """Make an environment of a user's behind the guard.

    Args:
        factory: Its class, or a function that makes it.
        path: Import path of the factory.
        arguments: Keywords of the factory.

    Raises:
        CustomCodeError: It cannot be made, or is not a `TextEnv`.

    """
    module, _, name = path.partition(":")
    return GuardedEnv(
        lambda: factory(**copy.deepcopy(dict(arguments))),
        name=name,
        module=module,
        limit_s=limit_of(factory),
    )


def guarded_score(score: Score, path: str) -> Score:
    """Return a score of a user's behind the guard.

    Args:
        score: The function.
        path: Its import path.

    """
    module, _, name = path.partition(":")
    limit_s = limit_of(score)

    def guarded(attempt: Attempt) -> Any:
        return call(f"score {name}()", lambda: score(attempt), limit_s=limit_s, module=module)

    return guarded


def _wrong(value: object, wanted: str) -> WrongResultError:
    shown = " ".join(repr(value).split())
    return WrongResultError(f"it returned {shown[:80]}, a {type(value).__name__}, for {wanted}")


def _of_type(value: Any, kind: type[T], wanted: str) -> T:
    if not isinstance(value, kind):
        raise _wrong(value, f"{wanted}, which is a {kind.__name__}")
    if isinstance(value, str) and (half := half_character(value)):
        raise WrongResultError(f"it returned {half}, half of a character, in {wanted}")
    return value


def _mapping(value: Any, wanted: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, f"{wanted}, which is a mapping")
    return dict(value)


def _number(value: Any, wanted: str) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise _wrong(value, f"{wanted}, which is a finite number")
    return float(value)


def _probability(value: Any) -> float:
    number = _number(value, "a probability")
    if not 0 <= number <= 1:
        raise _wrong(value, "a probability, which is from 0 to 1")
    return number


def _names(value: Any, wanted: str = "actions, which are a tuple of names") -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong(value, wanted)
    return tuple(_of_type(name, str, "one of its names") for name in value)


def _sound_gold(gold: Any) -> GoldResponse:
    found = _of_type(gold, GoldResponse, "a gold response")
    return GoldResponse(
        before=_of_type(found.before, str, "its text before the gold"),
        golds=_names(found.golds, "golds, which are a tuple of texts"),
        after=_of_type(found.after, str, "its text after the gold"),
    )


def _sound_task(task: Any, seed: int) -> Task:
    found = _of_type(task, Task, "a task")
    for name in ("task_id", "content_hash", "near_hash"):
        _of_type(getattr(found, name), str, name)
    for name in ("seed", "difficulty"):
        _of_type(getattr(found, name), int, name)
    if found.seed != seed:
        raise WrongResultError(f"it returned a task of seed {found.seed} for seed {seed}")
    facts = _mapping({} if found.facts is None else found.facts, "facts")
    try:
        is_kept = json.loads(json.dumps(facts, allow_nan=False)) == facts
    except (TypeError, ValueError, RecursionError):
        is_kept = False
    if not is_kept:
        raise _wrong(facts, "facts, which are what JSON keeps: texts and plain numbers by name")
    return replace(found, facts=facts)


def _sound_step(step: Any, measures: Sequence[str]) -> Step:
    """Return a step with plain types; refuse one whose numbers or texts are none."""
    found = _of_type(step, Step, "a step")
    auxiliary = _mapping(found.auxiliary, "auxiliary")
    is_over = bool(found.terminated or found.truncated)
    if is_over and not found.fault and (missing := [n for n in measures if n not in auxiliary]):
        raise WrongResultError(f"its last step lacks the measure {missing[0]!r} (auxiliary_names)")
    return replace(
        found,
        observation=_of_type(found.observation, str, "an observation"),
        reward=_number(found.reward, "a reward"),
        terminated=bool(found.terminated),
        truncated=bool(found.truncated),
        success=bool(found.success),
        actions=_names(found.actions),
        n_invalid=_of_type(found.n_invalid, int, "n_invalid"),
        n_over_limit=_of_type(found.n_over_limit, int, "n_over_limit"),
        failure_class=FailureClass(found.failure_class),
        auxiliary={
            _of_type(name, str, "a measure's name"): _number(value, f"the measure {name!r}")
            for name, value in auxiliary.items()
        },
        fault=_of_type(found.fault, str, "fault"),
    )
