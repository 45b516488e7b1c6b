"""The answer is what a regular expression finds."""

import re

from rltune_envs.errors import CustomCodeError, VerifierError
from rltune_envs.guard import call_in_process
from rltune_envs.verifiers.base import TextVerifier, Verifier
from rltune_envs.verifiers.exact import normal_text

ANSWER = "{answer}"

LIMIT_S = 10.0
"""Time limit of the search in one response, in seconds."""


def last_group(pattern: str, flags: int, response: str) -> str | None:
    """Return the group of the last match in which it takes part."""
    found = [match[1] for match in re.finditer(pattern, response, flags) if match[1] is not None]
    return found[-1] if found else None


def regex(*, pattern: str, form: str | None = None, ignore_case: bool = False) -> Verifier:
    r"""Return the verifier whose answer is the group of the last match of a pattern.

    The answer is compared as `exact` compares texts; an empty one is none. `^` and `$` match at
    each line. The search is made in a process of its own, which is ended where it runs away.

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

    name, path = f"regex {pattern!r}", f"{__name__}:{last_group.__name__}"

    def find(response: str) -> str | None:
        try:
            found = call_in_process(name, path, pattern, int(flags), response, limit_s=LIMIT_S)
        except CustomCodeError as error:
            raise VerifierError(name, error.cause) from error
        return normal_text(str(found or "")) or None

    def is_equal(given: str, gold: str) -> bool:
        one, other = normal_text(given), normal_text(gold)
        return one.casefold() == other.casefold() if ignore_case else one == other

    before, _, after = (form or "").partition(ANSWER)
    return TextVerifier(find, is_equal, frame=(before, after) if form else None, has_form=False)
