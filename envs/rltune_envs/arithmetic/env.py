r"""Sums as a text environment: one prompt, one response, graded by the number in its last \boxed{}.

Reward: 1 for the right result, `format_penalty` where there is no whole box, else 0.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rltune_envs.arithmetic.sums import Sum, draw_sum
from rltune_envs.base import FailureClass, GoldResponse, Step, Task, TextEnv, task_of
from rltune_envs.choices import PROMPTS, require_at_least, require_choice, require_penalty
from rltune_envs.errors import EnvError
from rltune_envs.verifiers import Problem
from rltune_envs.verifiers.boxed import boxed

MAX_TERMS = 64
MAX_LARGEST = 10**9
STEP = ","
BOX, END = "\\boxed{", "}"

_INSTRUCTION = (
    "Work out the sum from left to right: write down each partial result, then the final result "
    "in \\boxed{}.\n"
)
_STEPS = re.compile(r"(?:\d+,)*")


class ArithmeticEnv(TextEnv):
    r"""A sum, a response, a grade; see the module for the reward.

    The compact prompt is the sum and `=`; the shortest complete response then lists the partial
    results, `7+5-4=` and `12,\boxed{8}`. The actions of such a response are these numbers, of any
    other one the boxed answer alone. All that counts is the last box.

    Args:
        terms: How many terms a sum may have, from 2.
        largest: Greatest term.
        format_penalty: The reward of a response without a whole box.
        prompt: `natural` asks for partial results in words; `compact` shows the sum only.

    Raises:
        ValueError: A value is none of these.

    """

    difficulty_unit = "terms"

    def __init__(
        self,
        *,
        terms: Sequence[int] = (3, 4, 5),
        largest: int = 9,
        format_penalty: float = -0.1,
        prompt: str = "natural",
    ) -> None:
        _require_terms(terms)
        require_at_least(1, largest=largest)
        if largest > MAX_LARGEST:
            raise ValueError(f"largest is {largest!r}; give at most {MAX_LARGEST}")
        require_penalty(format_penalty)
        require_choice("prompt", prompt, PROMPTS)
        self.terms = tuple(sorted(terms))  # the order given is no matter
        self.largest = largest
        self.format_penalty = format_penalty
        self.prompt = prompt
        self._verifier = boxed()
        self._sum: Sum | None = None
        self._last: Step | None = None

    @property
    def sum(self) -> Sum:
        """The sum that is being played."""
        if self._sum is None:
            raise EnvError("call reset(seed=...) first")
        return self._sum

    def reset(self, *, seed: int) -> str:
        """Start the sum of `seed` and show it."""
        self._sum, self._last = self._sum_of(seed), None
        if self.prompt == "compact":
            return self._sum.spelt() + "="
        return f"{_INSTRUCTION}{self._sum.spelt(blank=' ')} ="

    def step(self, response: str) -> Step:
        """Grade a response; it ends the episode."""
        if self._last is not None:
            return self._last.repeated()
        problem = Problem(self.sum.spelt(), str(self.sum.results[-1]))
        grade = self._verifier.grade(response, problem)
        self._last = self._ended(response, grade.given, success=grade.score >= 1)
        return self._last

    def _ended(self, response: str, given: str | None, *, success: bool) -> Step:
        """Return the step of a graded response."""
        is_valid = given is not None
        failure = FailureClass.WRONG if is_valid else FailureClass.MALFORMED
        return Step(
            "",
            reward=float(success) if is_valid else self.format_penalty,
            terminated=is_valid,
            truncated=not is_valid,
            success=success,
            actions=() if given is None else _actions(response, given),
            is_valid=is_valid,
            n_invalid=int(not is_valid),
            failure_class=FailureClass.NONE if success else failure,
        )

    def task(self, seed: int) -> Task:
        """Describe the sum of `seed`; sums of the same terms in another order are near."""
        drawn = self._sum_of(seed)
        near = drawn.unordered
        return task_of("arithmetic", drawn.spelt(), seed, near=near, difficulty=len(drawn.terms))

    def gold(self, seed: int) -> Mapping[str, Any]:
        """Return the result, as an answer, and the partial results before it."""
        *partial, result = self._sum_of(seed).results
        return {"answers": [str(result)], "partial": partial}

    def format_response(self, actions: Sequence[str]) -> str:
        """Write partial results and, in a box, the last number."""
        *partial, answer = actions
        return "".join(number + STEP for number in partial) + BOX + answer + END

    def expert_actions(self) -> tuple[str, ...] | None:
        """Give all partial results and the result; None after the end."""
        return None if self._last is not None else tuple(map(str, self.sum.results))

    def gold_response(self) -> GoldResponse | None:
        """Return the response with the partial results and the result; None after the end."""
        actions = self.expert_actions()
        if actions is None:
            return None
        partial = "".join(number + STEP for number in actions[:-1])
        return GoldResponse(partial + BOX, actions[-1:], END)

    def shortest_responses(self) -> tuple[str, ...]:
        """Return the response with each number of one digit."""
        return tuple(self.format_response((digit,)) for digit in "0123456789")

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Guess a result."""
        return (str(rng.randint(0, self._greatest)),)

    def random_success_probability(self, seed: int) -> float:
        """Return the probability of the right guess, equal for every sum."""
        return 1.0 / (self._greatest + 1)

    def optimal_success_probability(self, seed: int) -> float:
        """Return 1: every sum has a result."""
        return 1.0

    @property
    def _greatest(self) -> int:
        """The greatest result that any sum may have."""
        return max(self.terms) * self.largest

    def _sum_of(self, seed: int) -> Sum:
        return draw_sum(seed, self.terms, self.largest)


def _actions(response: str, given: str) -> tuple[str, ...]:
    """Return the numbers of a response that is a list of them, else the answer alone."""
    partial = response.rpartition(BOX)[0] if response.endswith(END) else ""
    if not response.startswith(f"{partial}{BOX}{given}{END}") or not _STEPS.fullmatch(partial):
        return (given,)
    return (*partial.split(STEP)[:-1], given)


def _require_terms(terms: Sequence[int]) -> None:
    """Refuse numbers of terms that are none, repeated or out of range."""
    if not terms or len(set(terms)) < len(terms):
        raise ValueError(f"terms is {list(terms)!r}; give one or more different numbers")
    require_at_least(2, terms=min(terms))
    if max(terms) > MAX_TERMS:
        raise ValueError(f"terms is {list(terms)!r}; give at most {MAX_TERMS}")
