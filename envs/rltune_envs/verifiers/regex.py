"""The answer is what a regular expression finds."""

import re

from rltune_envs.errors import CustomCodeError, VerifierError
from rltune_envs.guard import call
from rltune_envs.verifiers.base import TextVerifier, Verifier
from rltune_envs.verifiers.exact import normal_text

ANSWER = "{answer}"


def regex(*, pattern: str, form: str | None = None, ignore_case: bool = False) -> Verifier:
    r"""Return the verifier whose answer is the group of the last match of a pattern.

    The answer is compared as `exact` compares texts; an empty one is none. `^` and `$` match at
    each line. A search that does not end is a call of custom code that hangs (`guard`).

    Args:
        pattern: Python regular expression with one group: `Answer:\s*(.+)`.
        form: How a response gives an answer, `Answer: {answer}`; with it, tasks prove themselves.
        ignore_case: Whether case counts neither in the pattern nor in the answer.

    Raises:
        ValueError: The pattern is no regular expression with one group, or the form has no
            `{answer}`.

    """
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    try:
        compiled = re.compile(pattern, flags)
    except re.error as error:
        raise ValueError(f"pattern: {pattern!r} is not a regular expression: {error}") from error
    if compiled.groups != 1:
        raise ValueError(
            f"pattern: {pattern!r} has {compiled.groups} groups; put one pair of parentheses "
            "around the answer, and write (?:...) for others"
        )
    if form is not None and form.count(ANSWER) != 1:
        raise ValueError(f"form: {form!r} must hold {ANSWER} once")

    def search(response: str) -> str | None:
        found = [match[1] for match in compiled.finditer(response) if match[1] is not None]
        return normal_text(found[-1]) if found else None

    def find(response: str) -> str | None:
        try:
            return str(call("regex", lambda: search(response) or "")) or None
        except CustomCodeError as error:
            raise VerifierError("regex", error.cause) from error

    def is_equal(given: str, gold: str) -> bool:
        one, other = normal_text(given), normal_text(gold)
        return one.casefold() == other.casefold() if ignore_case else one == other

    before, _, after = (form or "").partition(ANSWER)
    return TextVerifier(find, is_equal, frame=(before, after) if form else None, has_form=False)
