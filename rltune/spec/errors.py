"""Violations of a config's rules, carried through pydantic to where they are reported."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import PydanticCustomError

VIOLATION = "rltune_violation"
"""Type of the pydantic error that carries violations in its context."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation: the key (relative to the checked section), what is wrong, and what to do."""

    key: str
    what: str
    action: str


def refuse(violations: Sequence[Violation]) -> None:
    """Raise one pydantic error that carries all violations; do nothing without any."""
    if violations:
        text = " ".join(f"{violation.what} {violation.action}" for violation in violations)
        raise PydanticCustomError(
            VIOLATION, "{text}", {"text": text, "violations": tuple(violations)}
        )
