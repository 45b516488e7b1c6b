"""The verifier of `env: verified`: which one, and how it compares."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rltune.spec.env_checks import unused
from rltune.spec.errors import Violation, refuse
from rltune.spec.schema.base import NonNegativeFloat, Section

OPTIONS: dict[str, tuple[str, ...]] = {
    "boxed": ("compare",),
    "exact": ("ignore_case",),
    "regex": ("pattern", "form", "ignore_case"),
    "multiple_choice": (),
    "number": ("tolerance", "relative_tolerance"),
    "reasoning_gym": ("extract",),
}
"""Name of a verifier -> the keys that it reads."""

_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class VerifierConfig(Section):
    """How a response is graded."""

    kind: str = Field(
        description="boxed, exact, regex, multiple_choice or number; reasoning_gym, the scorer of "
        "the data set of env.source; or the import path of a function of (prompt, response, row): "
        "my_pkg.my_mod:score."
    )
    compare: Literal["value", "text", "math_verify"] = Field(
        "value",
        description="How boxed answers are compared: as texts, or numbers by their value too, or "
        "as mathematics too, by the package math-verify.",
    )
    pattern: str | None = Field(
        None,
        min_length=1,
        description="Regular expression of regex, with one group: the answer; the last match "
        "counts.",
    )
    form: str | None = Field(
        None,
        min_length=1,
        description="How a response to regex gives an answer, with {answer} in it; with it, tasks "
        "prove that they can be solved.",
    )
    ignore_case: bool = Field(
        False, description="Whether exact and regex take a and A for equal (no unit)."
    )
    tolerance: NonNegativeFloat = Field(
        0.0, description="Greatest distance from the answer of number (the answer's unit)."
    )
    relative_tolerance: NonNegativeFloat = Field(
        0.0, description="The same, as a share of the answer (no unit); the larger of both holds."
    )

    extract: Literal["tags", "boxed", "whole", "tags_or_whole"] = Field(
        "tags",
        description="Where the answer to reasoning_gym is: in the last <answer> tags, in the last "
        "\\boxed{}, the whole response, or the whole one where it has no tags.",
    )

    @property
    def is_custom(self) -> bool:
        """Whether it is a function of the user's own."""
        return ":" in self.kind

    def options(self) -> dict[str, Any]:
        """Return its name and the keys that it reads, as the environment takes them."""
        return {key: getattr(self, key) for key in ("kind", *OPTIONS.get(self.kind, ()))}

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(_violations(self))
        return self


def _violations(verifier: VerifierConfig) -> list[Violation]:
    kind = verifier.kind
    if kind not in OPTIONS and not _IMPORT_PATH.fullmatch(kind):
        what = f"{kind!r} is not a verifier."
        names = ", ".join(OPTIONS)
        action = f"Choose one of {names}, or an import path: my_pkg.my_mod:score."
        return [Violation("kind", what, action)]
    keys = [key for keys in OPTIONS.values() for key in keys]
    unread = [key for key in dict.fromkeys(keys) if key not in OPTIONS.get(kind, ())]
    found = unused(verifier, unread, f"verifier {kind} does not read it")
    return found + (_of_pattern(verifier) if kind == "regex" else [])


def _of_pattern(verifier: VerifierConfig) -> list[Violation]:
    """Return what is wrong with a pattern and a form."""
    if verifier.pattern is None:
        return [Violation("pattern", "null finds no answer.", r"Give one: 'Answer:\s*(.+)'.")]
    found = []
    try:
        groups = re.compile(verifier.pattern).groups
    except re.error as error:
        what = f"{verifier.pattern!r} is not a regular expression: {error}."
        found.append(Violation("pattern", what, r"Write one of Python's: 'Answer:\s*(.+)'."))
    else:
        if groups != 1:
            what = f"{verifier.pattern!r} has {groups} groups."
            action = "Put one pair of parentheses around the answer, and write (?:...) for others."
            found.append(Violation("pattern", what, action))
    if verifier.form is not None and verifier.form.count("{answer}") != 1:
        what = f"{verifier.form!r} does not hold {{answer}} once."
        found.append(Violation("form", what, "Write it like 'Answer: {answer}'."))
    return found


def long_verifier(value: object) -> object:
    """Return the short form of a verifier, its name, in full; anything else unchanged."""
    return {"kind": value} if isinstance(value, str) else value


Verifier = Annotated[VerifierConfig, BeforeValidator(long_verifier)]
"""A verifier, or its name alone."""
