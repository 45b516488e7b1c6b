"""Custom environments and scores behind the guard: one error for any failure, checked results.

`guard` makes the calls. A result has the types that the contract names, with finite numbers, or a
`CustomCodeError` says what is wrong with it.
"""

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, TypeVar

from rltune_envs.base import FailureClass, GoldResponse, Step, Task, TextEnv
from rltune_envs.characters import half_character
from rltune_envs.errors import CustomCodeError
from rltune_envs.guard import WrongResultError, call, call_in_process, limit_of
from rltune_envs.rewards import Attempt, Score
from rltune_envs.wrapper import EnvWrapper

T = TypeVar("T")


class GuardedEnv(EnvWrapper):
    """A custom environment, each call of which is guarded and each result of which is checked.

    The class attributes are read when it is made; the system prompt and the response prefix again
    after each call.

    Args:
        make: Makes the environment.
        name: Its name in errors: its class.
        module: Module of its code.
        limit_s: Time limit of a call, in seconds.

    Raises:
        CustomCodeError: It cannot be made, or is not a `TextEnv`.

    """

    def __init__(
        self, make: Callable[[], object], *, name: str, module: str, limit_s: float
    ) -> None:
        self._name, self._module, self._limit_s = name, module, limit_s
        made = self._call("()", make)
        if not isinstance(made, TextEnv):
            cause = (
                f"it makes a {type(made).__name__}, not a rltune_envs.base.TextEnv; derive the "
                "class from TextEnv"
            )
            raise CustomCodeError(f"env {name}", cause)
        self._call("", lambda: self._read(made))

    def _read(self, inner: TextEnv) -> None:
        super().__init__(inner)
        self.is_deterministic = bool(inner.is_deterministic)
        self.difficulty_unit = _of_type(inner.difficulty_unit, str, "difficulty_unit")
        self.auxiliary_names = tuple(inner.auxiliary_names)
        self._read_frame()

    def _read_frame(self) -> None:
        self._system_prompt = _of_type(self.inner.system_prompt, str, "system_prompt")
        self._response_prefix = _of_type(self.inner.response_prefix, str, "response_prefix")

    def _call(self, suffix: str, function: Callable[[], T]) -> T:
        what = f"env {self._name}{suffix}"
        result: Any = call(what, function, limit_s=self._limit_s, module=self._module)
        return result  # type: ignore[no-any-return]

    def _ask(self, method: str, question: Callable[[], T]) -> T:
        check: Callable[[Any], T] = _CHECKS[method]

        def ask() -> T:
            answer = check(question())
            self._read_frame()
            return answer

        return self._call(f".{method}()", ask)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the environment's own, such as `action_names`."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> "GuardedEnv":
        """Return an independent copy; an environment may be impossible to copy."""
        apart = copy.copy(self)
        apart.inner = self._call(".__deepcopy__()", lambda: copy.deepcopy(self.inner, memo))
        return apart

    @property
    def system_prompt(self) -> str:
        """The environment's."""
        return self._system_prompt

    @property
    def response_prefix(self) -> str:
        """The environment's."""
        return self._response_prefix

    def step(self, response: str) -> Step:
        """Play one turn."""

        def play() -> Step:
            step = self.inner.step(response)
            _require_measures(step, self.auxiliary_names)
            return step

        return self._ask("step", play)

    def task(self, seed: int) -> Task:
        """Describe the task of `seed`."""

        def describe() -> Task:
            task = _valid_task(self.inner.task(seed))
            if task.seed != seed:
                raise WrongResultError(f"it returned a task of seed {task.seed} for seed {seed}")
            return task

        return self._ask("task", describe)


def guarded_env(factory: Callable[..., object], path: str, arguments: Mapping[str, Any]) -> TextEnv:
    """Make a custom environment behind the guard.

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
    """Return a custom score behind the guard.

    Args:
        score: The function. One with an attribute `in_process` that is True is called in another
            process, which is ended where the call hangs: for what no thread can interrupt, such as
            a regular expression of the policy's own text.
        path: Its import path.

    """
    module, _, name = path.partition(":")
    limit_s = limit_of(score)

    def guarded(attempt: Attempt) -> Any:
        if getattr(score, "in_process", False) is True:
            return call_in_process(f"score {name}()", path, attempt, limit_s=limit_s)
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


def _seeds(value: Any) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong(value, "seeds, which are a list of whole numbers")
    return [_of_type(seed, int, "one of its seeds") for seed in value]


def _digests(value: Any) -> dict[str, str]:
    given = _mapping(value, "digests by file")
    return {
        _of_type(path, str, "a file's name"): _of_type(digest, str, "a digest")
        for path, digest in given.items()
    }


def _optional(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else check(value)


def _valid_gold(value: Any) -> GoldResponse:
    gold = _of_type(value, GoldResponse, "a gold response")
    return GoldResponse(
        before=_of_type(gold.before, str, "its text before the gold"),
        golds=_names(gold.golds, "golds, which are a tuple of texts"),
        after=_of_type(gold.after, str, "its text after the gold"),
    )


def _valid_task(value: Any) -> Task:
    task = _of_type(value, Task, "a task")
    for name in ("task_id", "content_hash", "near_hash"):
        _of_type(getattr(task, name), str, name)
    _of_type(task.seed, int, "seed")
    _optional(lambda difficulty: _of_type(difficulty, int, "difficulty"))(task.difficulty)
    facts = _mapping({} if task.facts is None else task.facts, "facts")
    try:
        is_kept = json.loads(json.dumps(facts, allow_nan=False)) == facts
    except (TypeError, ValueError, RecursionError):
        is_kept = False
    if not is_kept:
        raise _wrong(facts, "facts, which are what JSON keeps: texts and plain numbers by name")
    return replace(task, facts=facts)


def _require_measures(value: Any, names: Sequence[str]) -> None:
    """Refuse a last step without all measures; after a fault there need not be any."""
    step = _of_type(value, Step, "a step")
    auxiliary = _mapping(step.auxiliary, "auxiliary")
    missing = [name for name in names if name not in auxiliary]
    if (step.terminated or step.truncated) and not step.fault and missing:
        raise WrongResultError(f"its last step lacks the measure {missing[0]!r} (auxiliary_names)")


def _valid_step(value: Any) -> Step:
    """Return a step with plain types; refuse one with other numbers or texts."""
    step = _of_type(value, Step, "a step")
    return replace(
        step,
        observation=_of_type(step.observation, str, "an observation"),
        reward=_number(step.reward, "a reward"),
        terminated=bool(step.terminated),
        truncated=bool(step.truncated),
        success=bool(step.success),
        actions=_names(step.actions),
        n_invalid=_of_type(step.n_invalid, int, "n_invalid"),
        n_over_limit=_of_type(step.n_over_limit, int, "n_over_limit"),
        failure_class=FailureClass(step.failure_class),
        auxiliary={
            _of_type(name, str, "a measure's name"): _number(measure, f"the measure {name!r}")
            for name, measure in _mapping(step.auxiliary, "auxiliary").items()
        },
        fault=_of_type(step.fault, str, "fault"),
    )


def _text(wanted: str) -> Callable[[Any], str]:
    return lambda value: _of_type(value, str, wanted)


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "reset": _text("an observation"),
    "step": _valid_step,
    "task": lambda task: task,  # checked with its seed
    "format_response": _text("a response"),
    "expert_actions": _optional(_names),
    "random_actions": _names,
    "random_success_probability": _probability,
    "optimal_success_probability": _probability,
    "shortest_responses": _names,
    "cell_symbols": _text("symbols"),
    "eval_sets": lambda value: {
        str(name): int(_number(offset, "what is added to a seed"))
        for name, offset in _mapping(value, "the sets").items()
    },
    "gold": lambda value: _mapping(value, "gold"),
    "part_seeds": _seeds,
    "file_digests": _digests,
    "repeated_rows": lambda value: int(_number(value, "a number of rows")),
    "distance_to_go": _optional(lambda value: int(_number(value, "a distance"))),
    "gold_response": _optional(_valid_gold),
}
"""Method -> check of its result."""
