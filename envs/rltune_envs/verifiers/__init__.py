"""Verifiers: each finds the answer in a response and compares it with the gold answer."""

from collections.abc import Callable, Mapping
from typing import Any

from rltune_envs.choices import did_you_mean
from rltune_envs.verifiers.base import Grade, Problem, Verifier
from rltune_envs.verifiers.boxed import boxed
from rltune_envs.verifiers.custom import custom
from rltune_envs.verifiers.exact import exact
from rltune_envs.verifiers.multiple_choice import multiple_choice
from rltune_envs.verifiers.number import number
from rltune_envs.verifiers.reasoning_gym import reasoning_gym
from rltune_envs.verifiers.regex import regex

__all__ = ["VERIFIERS", "Grade", "Problem", "Verifier", "make_verifier"]

VERIFIERS: dict[str, Callable[..., Verifier]] = {
    "boxed": boxed,
    "exact": exact,
    "regex": regex,
    "multiple_choice": multiple_choice,
    "number": number,
    "reasoning_gym": reasoning_gym,
}
"""Name -> what makes the verifier; its keywords are the keys of the config beside `kind`."""


def make_verifier(kind: str, options: Mapping[str, Any] | None = None) -> Verifier:
    """Return a verifier by its name, or by the import path of a score function.

    Args:
        kind: A key of `VERIFIERS`, or `my_pkg.my_mod:score`, a function of (prompt, response, row).
        options: Keywords of the verifier.

    Raises:
        ValueError: There is no such verifier, or an option cannot be used.
        ImportPathError: The import path cannot be used.

    """
    if ":" in kind:
        return custom(kind)
    if kind not in VERIFIERS:
        raise ValueError(
            f"verifier is {kind!r}; choose one of {', '.join(VERIFIERS)}, or an import path such "
            f"as my_pkg.my_mod:score.{did_you_mean(kind, VERIFIERS)}"
        )
    return VERIFIERS[kind](**(options or {}))
