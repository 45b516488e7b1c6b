"""A score function of one's own, behind the guard: whatever goes wrong in it is a fault.

It is called in a process of its own, which is ended where the function hangs, unless it has an
attribute `in_process` that is False: for one that waits (a service), or needs what is in this
process.
"""

import copy
import inspect
import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

from rltune_envs.errors import CustomCodeError, ImportPathError, VerifierError
from rltune_envs.guard import WrongResultError, call, call_in_process, limit_of
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
        name = self.path.partition(":")[2]
        what, limit_s = f"verifier {name}()", limit_of(self.score)
        given = (problem.prompt, response, copy.deepcopy(dict(problem.row)))
        try:
            if getattr(self.score, "in_process", True) is False:
                value = self._in_thread(what, given, limit_s)
            else:
                value = call_in_process(what, self.path, *given, limit_s=limit_s)
            return Grade(_checked(value), response)
        except (CustomCodeError, WrongResultError) as error:
            cause = error.cause if isinstance(error, CustomCodeError) else str(error)
            raise VerifierError(f"{name}() on {problem.place}", cause) from error

    def _in_thread(self, what: str, given: tuple[Any, ...], limit_s: float) -> object:
        function = partial(_without_fork, self.score, *given)
        return call(what, function, limit_s=limit_s, module=self.path.partition(":")[0])

    def write(self, answer: str) -> str | None:
        """Return None: only the function knows what is right."""
        return None

    def gold(self, problem: Problem) -> str:
        """Return the row's answer as it stands; the function may read it in another way."""
        return problem.answer


def custom(path: str) -> Verifier:
    """Return the verifier of an import path.

    Raises:
        ImportPathError: The path names nothing that can be used, or a function that cannot be
            called so.

    """
    score = load_object(path)
    _require_call(path, score)
    return CustomVerifier(path, score)


def _require_call(path: str, score: Callable[..., object]) -> None:
    """Refuse a function of other arguments: all of its scores would be faults."""
    if inspect.iscoroutinefunction(score):
        raise ImportPathError(f"{path!r} is a coroutine; define it with def, not async def")
    try:
        signature = inspect.signature(score)
    except (TypeError, ValueError):  # a function of C without one
        return
    try:
        signature.bind("prompt", "response", {})
    except TypeError as error:
        raise ImportPathError(
            f"{path!r} cannot be called with (prompt, response, row): {error}; it is defined with "
            f"{signature}"
        ) from error


def _without_fork(score: Callable[[str, str, Any], object], *given: Any) -> object:
    """Return what a function returns; refuse one that forks this process."""
    process, before = os.getpid(), _local.n_forks
    try:
        value = score(*given)
    finally:
        if os.getpid() != process:  # the copy of a trial must not go on as one
            os._exit(0)
    if _local.n_forks != before:
        raise WrongResultError(
            "it forked this process, whose copy holds the model; use subprocess, or "
            "multiprocessing with the start method spawn"
        )
    return value


def _checked(value: object) -> float:
    """Return a score as a number from 0 to 1."""
    try:
        score = float(value) if isinstance(value, Real) else math.nan
    except Exception:  # whatever a class raises; 10**400 is no float
        score = math.nan
    if not 0 <= score <= 1:
        raise WrongResultError(
            f"it returned {_shown(value)}; return a number from 0 to 1, or a bool"
        )
    return score


def _shown(value: object) -> str:
    """Return a value in at most 80 characters, by its type where it cannot be written."""
    try:
        return " ".join(repr(value).split())[:80]
    except Exception:  # whatever a class raises; 10**5000 has too many digits
        return f"something of type {type(value).__name__}"
