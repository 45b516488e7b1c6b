"""From the text of a response to the actions it names.

Names are compared whole and without case. Execution stops at the first name that is not an action:
the rest was planned for a state that was never reached. (The published system drops unknown names
and executes the rest.)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

SEPARATOR = "||"
_THINK, _ANSWER, _ANSWER_END = "<think>", "<answer>", "</answer>"
_THOUGHT_TO_ANSWER = re.compile(r"</think>\s*<answer>")


@dataclass(frozen=True, slots=True)
class ParsedActions:
    """The actions of a response.

    Attributes:
        actions: Allowed names up to the first bad one, at most `limit`.
        n_invalid: 1 when a bad name stopped the list, or when there was no answer at all.
        n_over_limit: Allowed names beyond `limit`; they are counted, not executed, not penalised.

    """

    actions: tuple[str, ...]
    n_invalid: int
    n_over_limit: int

    @property
    def is_valid(self) -> bool:
        """Whether the response has an answer and every name in it is allowed."""
        return self.n_invalid == 0


def parse_actions(
    response: str, *, names: Sequence[str], limit: int, needs_think: bool
) -> ParsedActions:
    """Read `<answer>A || B</answer>` (after `<think>..</think>` where that is required).

    The first complete answer counts; text after it is ignored. An answer tag that is never closed
    is no answer.

    Args:
        response: The whole response, its prefilled prefix included.
        names: Action names that are allowed.
        limit: Actions that may be executed.
        needs_think: Require a think block directly before the answer.

    """
    answer = _answer(response, needs_think=needs_think)
    if answer is None:
        return ParsedActions((), n_invalid=1, n_over_limit=0)
    by_name = {name.casefold(): name for name in names}
    allowed: list[str] = []
    n_invalid = 0
    for part in answer.split(SEPARATOR):
        name = by_name.get(part.strip().casefold())
        if name is None:
            n_invalid = 1
            break
        allowed.append(name)
    return ParsedActions(tuple(allowed[:limit]), n_invalid, max(0, len(allowed) - limit))


def _answer(response: str, *, needs_think: bool) -> str | None:
    """Return what stands in the first complete answer block; None without one.

    The first thought may hold anything, tags included, up to the first `</think>` that an answer
    follows. Plain searches keep the time linear: a lazy regular expression over the whole block
    takes half a minute for 16 kB of repeated tags, which a policy may write.
    """
    if needs_think:
        think = response.find(_THINK)
        opening = _THOUGHT_TO_ANSWER.search(response, think + len(_THINK)) if think >= 0 else None
        start = opening.end() if opening else -1
    else:
        tag = response.find(_ANSWER)
        start = tag + len(_ANSWER) if tag >= 0 else -1
    end = response.find(_ANSWER_END, start)
    return response[start:end] if 0 <= start <= end else None
