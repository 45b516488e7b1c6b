"""A score function of one's own, behind the guard: whatever goes wrong in it is a fault."""

import copy
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from rltune_envs.errors import CustomCodeError, VerifierError
from rltune_envs.guard import WrongResultError, call, limit_of
from rltune_envs.imports import load_object
from rltune_envs.verifiers.base import Grade, Problem, Verifier


class _Local(threading.local):
    """How often a thread has forked this process."""

    n_forks = 0


_local = _Local()


def _count_fork() -> None:
    _local.n_forks += 1


os.register_at_fork(after_in_parent=_count_fork)


@dataclass(frozen=True, slots=True)
class CustomVerifier:
    """Grades by a function of (prompt, response, row).

    Attributes:
        path: Its import path.
        score: The function.

    """

    path: str
    score: Callable[[str, str, Any], object]
    has_form: bool = False

    def grade(self, response: str, problem: Problem) -> Grade:
        """Return the function's score, a number from 0 to 1; the answer is the whole response.

        Raises:
            VerifierError: It raised, hung, forked, or returned something else. The message has the
                place of the row and what to do.

        """
        module, _, name = self.path.partition(":")

        def judge() -> float:
            row = copy.deepcopy(dict(problem.row))
            return _checked(self.score, problem.prompt, response, row)

        try:
            score: Any = call(
                f"verifier {name}()", judge, limit_s=limit_of(self.score), module=module
            )
        except CustomCodeError as error:
            raise VerifierError(f"{name}() on {problem.place}", error.cause) from error
        return Grade(score, response)

    def write(self, answer: str) -> str | None:
        """Return None: only the function knows what is right."""
        return None

    def gold(self, problem: Problem) -> str:
        """Return the row's answer as it stands; the function may read it in another way."""
        return problem.answer


def custom(path: str) -> Verifier:
    """Return the verifier of an import path.

    Raises:
        ImportPathError: The path names nothing that can be used.

    """
    return CustomVerifier(path, load_object(path))


def _checked(
    score: Callable[[str, str, Any], object], prompt: str, response: str, row: dict[str, Any]
) -> float:
    process, before = os.getpid(), _local.n_forks
    try:
        value = score(prompt, response, row)
    finally:
        if os.getpid() != process:  # the copy of a trial must not go on as one
            os._exit(0)
    if _local.n_forks != before:
        raise WrongResultError(
            "it forked this process, whose copy holds the model; use subprocess, or "
            "multiprocessing with the start method spawn"
        )
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        shown = " ".join(repr(value).split())[:80]
        raise WrongResultError(f"it returned {shown}; return a number from 0 to 1, or a bool")
    return float(value)
