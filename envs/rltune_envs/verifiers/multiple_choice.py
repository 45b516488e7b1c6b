"""The answer is the letter of a choice."""

import re
from string import ascii_uppercase

from rltune_envs.files_rows import RowError
from rltune_envs.verifiers.base import Problem, TextVerifier, Verifier
from rltune_envs.verifiers.boxed import last_boxed
from rltune_envs.verifiers.exact import normal_text

_ALONE = re.compile(r"\(?([A-Za-z])[).:]?")
_SAID = re.compile(r"\b(?i:answer|choice|option)\b(?: is)?\s*+:?\s*+\(?(?!I [a-z])([A-Z])\b\)?")
_MARKED = re.compile(r"\(([A-Z])\)")


def find_letter(response: str) -> str | None:
    r"""Return the letter that a response chooses; None where it chooses none.

    The first of these that it has, and of that the last: `\boxed{B}`; "answer is B", "answer: (B)";
    `(B)`; a last line that is nothing but `B`, `B)` or `B.`. Stars around a letter do not count.
    """
    text = response.replace("*", "").strip()
    if (box := last_boxed(text)) is not None:
        alone = _ALONE.fullmatch(re.sub(r"\\text\s*\{(.*)\}", r"\1", box).strip())
        return alone[1].upper() if alone else None
    for pattern in (_SAID, _MARKED):
        if found := pattern.findall(text):
            return str(found[-1]).upper()
    alone = _ALONE.fullmatch(text.split("\n")[-1].strip())
    return alone[1].upper() if alone else None


def multiple_choice() -> Verifier:
    """Return the verifier that compares the chosen letter with the right one.

    The answer of a row is a letter, the text of a choice, or the index of a choice from 0.
    """
    return TextVerifier(
        find_letter, lambda given, gold: given == gold, frame=("(", ")"), check=_letter
    )


def letters_of(problem: Problem) -> str:
    """Return the letters of the choices."""
    return ascii_uppercase[: len(problem.choices)]


def _letter(problem: Problem) -> str:
    """Return the letter of the right choice."""
    choices, answer = [normal_text(choice) for choice in problem.choices], problem.answer.strip()
    if not 2 <= len(choices) <= len(ascii_uppercase):
        raise RowError(f"it has {len(choices)} choices; from 2 to 26 are needed")
    if len(set(choices)) < len(choices):
        raise RowError("two of its choices are equal; make them differ")
    letters = letters_of(problem)
    meant = {
        letter
        for letter, choice in zip(letters, choices, strict=True)
        if choice == normal_text(answer)
    }
    if len(answer) == 1 and answer.upper() in letters:
        meant.add(answer.upper())
    if answer.isascii() and answer.isdecimal() and int(answer[:9]) < len(choices):
        meant.add(letters[int(answer[:9])])
    if len(meant) != 1:
        why = f"may mean {' or '.join(sorted(meant))}" if meant else "is none of its choices"
        raise RowError(f"the answer {answer!r} {why}; give the letter, from A to {letters[-1]}")
    return meant.pop()
