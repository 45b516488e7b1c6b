"""Rewards by verifier: an attempt of a policy, named scores of it, and a weighted rubric.

A score is any function from an `Attempt` to a number. The first term of a rubric decides success;
the weighted sum is the reward. A score that fails is an error, never a zero.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from rltune_envs.base import FailureClass, Task
from rltune_envs.choices import did_you_mean
from rltune_envs.errors import CustomCodeError, VerifierError
from rltune_envs.imports import load_object


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One turn of an episode.

    Attributes:
        observation: What the policy read before it answered.
        response: What it answered, the given prefix included; no text of the environment.
        actions: Names of the actions that were executed.
        reward: The environment's own reward for it.
        is_valid: The response could be read.

    """

    observation: str
    response: str
    actions: tuple[str, ...]
    reward: float
    is_valid: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """A whole episode, as a score sees it.

    Attributes:
        task: The task that was played.
        turns: What happened, in order; at least one turn.
        success: Whether the environment itself calls it a success.
        reward: Sum of the environment's own rewards.
        auxiliary: The environment's own measures of the episode.
        gold: What is known about the right answer (`TextEnv.gold`).

    """

    task: Task
    turns: tuple[PlayedTurn, ...]
    success: bool
    reward: float
    auxiliary: Mapping[str, float]
    gold: Mapping[str, Any]

    @property
    def responses(self) -> tuple[str, ...]:
        """The policy's own text, turn by turn; what it was shown is not in there."""
        return tuple(turn.response for turn in self.turns)


Score = Callable[[Attempt], float]


@dataclass(frozen=True, slots=True)
class Term:
    """A score, its name in records, and its weight in the reward."""

    name: str
    weight: float
    score: Score


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a rubric.

    Attributes:
        reward: Sum of weight x score.
        success: Whether the first score reaches the threshold.
        failure_class: `none` on success, else `wrong`.
        auxiliary: Score by term name.

    """

    reward: float
    success: bool
    failure_class: FailureClass
    auxiliary: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rubric:
    """A weighted sum of scores, the first of which decides success.

    Args:
        terms: Scores with different names; at least one.
        threshold: The first score is a success from here on; full marks by default.

    Raises:
        ValueError: There is no term, two share a name, or a number is not finite.

    """

    terms: tuple[Term, ...]
    threshold: float = 1.0

    def __post_init__(self) -> None:
        """Refuse repeated names and numbers that are not finite."""
        names = [term.name for term in self.terms]
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"the terms are {', '.join(names) or 'none'}; give one or more with different names"
            )
        for name, number in (
            ("threshold", self.threshold),
            *((f"weight of {term.name}", term.weight) for term in self.terms),
        ):
            if not math.isfinite(number):
                raise ValueError(f"the {name} is {number!r}; a finite number is needed")

    def judge(self, attempt: Attempt) -> Verdict:
        """Score an attempt.

        Raises:
            VerifierError: A score raised, or returned no finite number.

        """
        scores = {term.name: evaluate(term, attempt) for term in self.terms}
        success = scores[self.terms[0].name] >= self.threshold
        reward = sum(term.weight * scores[term.name] for term in self.terms)
        if not math.isfinite(reward):
            raise VerifierError("rubric", f"its weighted sum of {scores} is {reward!r}")
        return Verdict(
            reward=reward,
            success=success,
            failure_class=FailureClass.NONE if success else FailureClass.WRONG,
            auxiliary=scores,
        )


def evaluate(term: Term, attempt: Attempt) -> float:
    """Return the score of one term.

    Raises:
        VerifierError: It raised, or returned no finite number.

    """
    try:
        value: object = term.score(attempt)
        number = float(value) if isinstance(value, Real) else math.nan
    except CustomCodeError as error:
        raise VerifierError(term.name, error.cause) from error
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise VerifierError(term.name, f"it raised {text[:200]}") from error
    if not math.isfinite(number):
        text = " ".join(repr(value).split())
        cause = f"it returned {text[:80]}, a {type(value).__name__}, not a finite number"
        raise VerifierError(term.name, cause)
    return number


def success(attempt: Attempt) -> float:
    """Return 1 where the environment calls it a success, else 0."""
    return float(attempt.success)


def env_reward(attempt: Attempt) -> float:
    """Return the sum of the environment's own rewards."""
    return attempt.reward


def valid_turns(attempt: Attempt) -> float:
    """Return the share of turns whose response could be read."""
    return sum(turn.is_valid for turn in attempt.turns) / len(attempt.turns)


SCORES: dict[str, Score] = {
    "success": success,
    "env_reward": env_reward,
    "valid_turns": valid_turns,
}


def find_score(name: str, *, auxiliary_names: Sequence[str] = ()) -> Score:
    """Return the score of a name, of a measure of the environment, or of an import path.

    Args:
        name: A key of `SCORES`, one of `auxiliary_names`, or `my_pkg.my_mod:function`.
        auxiliary_names: What the environment measures itself (`TextEnv.auxiliary_names`).

    Raises:
        ValueError: There is no such name.
        ImportPathError: The import path cannot be used.

    """
    if ":" in name:
        return load_object(name)
    if name in SCORES:
        return SCORES[name]
    if name in auxiliary_names:
        return lambda attempt: attempt.auxiliary[name]
    choices = [*SCORES, *auxiliary_names]
    raise ValueError(
        f"{name!r} is not a score. Choose one of {', '.join(choices)}, or an import path such as "
        f"my_pkg.my_mod:score.{did_you_mean(name, choices)}"
    )
