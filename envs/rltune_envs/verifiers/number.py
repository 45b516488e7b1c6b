"""The answer is the last number of the response."""

import re
from fractions import Fraction

from rltune_envs.files_rows import RowError
from rltune_envs.verifiers.base import Problem, TextVerifier, Verifier

_MAX_DIGITS = 60
_MAX_EXPONENT = 300
_UNIT = re.compile(r"(?:[^\W\d_]+|[€£¥°])?\.?")
_PLAIN = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2012": "-", "\ufe63": "-", "\uff0d": "-",
                        "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2044": "/"})  # fmt: skip
_DIGIT = re.compile(r"[0-9]")
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_NUMBER = re.compile(
    # A minus is a sign only where nothing stands before it: in 3-4 it is none.
    rf"(?:(?<![\w)])[-+])?(?:\$ ?)?(?:{_DIGITS}(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,9}(?![0-9\w]))?"
    r"(?: ?/ ?[0-9]++(?![.,/][0-9]))?"
    r"(?: ?%)?"
)


def find_number(text: str) -> str | None:
    """Return the last number of a text, as it is written; None where there is none."""
    found = _numbers(text)
    return found[-1] if found else None


def is_number_with_unit(text: str) -> bool:
    """Return whether a text is one number, perhaps after a currency sign and before one word."""
    plain = text.translate(_PLAIN).strip()
    found = _NUMBER.findall(plain)
    if len(found) != 1:
        return False
    before, _, after = plain.partition(found[0])
    return before.strip() in ("", *"$€£¥") and _UNIT.fullmatch(after.strip()) is not None


def answer_part(answer: str) -> str:
    """Return what stands after the last `####` of an answer, as GSM8K has it; else all of it."""
    return answer.rpartition("####")[2].strip()


def read_number(text: str) -> Fraction | None:
    """Return the value of the only number of a text; None where it has none, or several.

    Read are: a sign (the unicode minus too), thousands (`1,234`), a decimal point, an exponent,
    a fraction (`3/4`), a percentage (`50%` is 1/2), a dollar sign, and units that hold no digit.
    """
    found = _numbers(text)
    return _value(found[0]) if len(found) == 1 else None


def _numbers(text: str) -> list[str]:
    plain = text.translate(_PLAIN)
    has_digit = _DIGIT.search(plain)  # much cheaper, in a long response without a number
    return _NUMBER.findall(plain) if has_digit else []


def _value(text: str) -> Fraction | None:
    """Return the value of what `_NUMBER` matched; None where it is too long, or divides by 0."""
    plain = re.sub(r"[, $+]", "", text.replace("e+", "e").replace("E+", "e"))
    percent = plain.endswith("%")
    numerator, _, denominator = plain.rstrip("%").lower().partition("/")
    mantissa, _, exponent = numerator.partition("e")
    too_long = len(mantissa) > _MAX_DIGITS or len(denominator) > _MAX_DIGITS
    if too_long or abs(int(exponent or 0)) > _MAX_EXPONENT:
        return None
    if denominator and int(denominator) == 0:
        return None
    value = Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
    return value / int(denominator or 1) / (100 if percent else 1)


def number(*, tolerance: float = 0.0, relative_tolerance: float = 0.0) -> Verifier:
    """Return the verifier that compares the last number of a response with the answer.

    Units, words and signs of currency around the number do not count. Without a tolerance values
    must be equal as fractions: 0.5, 1/2 and 50% are.

    Args:
        tolerance: Greatest distance from the answer that is right.
        relative_tolerance: The same as a share of the answer; the larger of both holds.

    Raises:
        ValueError: A tolerance is negative or not finite.

    """
    for name, value in (("tolerance", tolerance), ("relative_tolerance", relative_tolerance)):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value!r}; give 0 or a positive number")

    def is_equal(given: str, gold: str) -> bool:
        one, other = read_number(given), read_number(gold)
        if one is None or other is None:
            return False
        allowed = max(Fraction(tolerance), Fraction(relative_tolerance) * abs(other))
        return abs(one - other) <= allowed

    return TextVerifier(find_number, is_equal, frame=("", ""), check=_checked)


def _checked(problem: Problem) -> str:
    """Return the number of the answer as it is written there."""
    answer = answer_part(problem.answer)
    found = find_number(answer)
    if found is None or read_number(answer) is None:
        raise RowError(
            f"the answer {problem.answer!r} is not one number; give a number, or take another "
            "verifier (boxed, exact)"
        )
    return found
