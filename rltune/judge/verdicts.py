"""Reading the judge's replies: exactly one verdict per step, or none at all.

Accepted: `{"verdicts": [{"step": 0, "verdict": "GOOD"}, ...]}`, with text or a markdown fence
around it, numbered from 0 or from 1, in any order; or, without any such object, one line
`Step 0 Judgment: **GOOD**` per step. A word in passing is no verdict: a reply that says "not a
good idea" in its analysis is not searched for GOOD.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL | re.IGNORECASE)
_LINE = re.compile(
    r"^[^\w\n]*step[^\w\n]*(\d+)[^\w\n]*(?:(?:judge?ment|verdict)[^\w\n]*)?(good|bad)[^\w\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_AROUND = " \t\n*_`\"'."
_WORDS = {"good": True, "bad": False}


class VerdictError(Exception):
    """A reply that cannot be read; the message says what is wrong with it, in one clause."""


class VerdictStatus(StrEnum):
    """How the judging of one trajectory ended."""

    JUDGED = "judged"  # one verdict per step
    PARSE_FAILURE = "parse_failure"  # the reply, and the one to the second request, were unreadable
    NO_ANSWER = "no_answer"  # every try failed: busy, down, too slow, no chat completion
    REFUSED = "refused"  # the service refuses all requests alike: wrong key, no right, no model
    REJECTED = "rejected"  # the service refused this request: too long, of a form it does not take
    UNSENDABLE = "unsendable"  # the request could not be written down for the service
    DEADLINE = "deadline"  # the time limit of all requests came first
    BUDGET = "budget"  # the limit of calls or tokens came first


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge said of one trajectory."""

    status: VerdictStatus  # how it ended
    flags: tuple[bool, ...] | None = None  # one per step, True for GOOD; None unless judged
    detail: str = ""  # what went wrong, in one line; empty when nothing did


def parse_verdicts(reply: str, *, n_steps: int) -> tuple[bool, ...]:
    """Return the flag of each step, True for GOOD.

    Text between `<think>` and `</think>` is not read.

    Args:
        reply: What the judge wrote.
        n_steps: Number of steps it was asked about.

    Raises:
        VerdictError: There is not exactly one verdict for each step.

    """
    text = without_thought(reply)
    if not text.strip():
        raise VerdictError("it is empty")
    lists = [_numbered(entries) for entries in _verdict_lists(text)]
    if not lists:
        lines = [(int(step), _WORDS[word.lower()]) for step, word in _LINE.findall(text)]
        if not lines:
            raise VerdictError('there is no JSON object with "verdicts"')
        lists = [lines]
    flags = [_in_order(pairs, n_steps=n_steps) for pairs in lists]
    if len(set(flags)) > 1:
        raise VerdictError("it holds several lists of verdicts, and they differ")
    return flags[0]


def without_thought(reply: str) -> str:
    """Return a reply without what stands between `<think>` and `</think>`."""
    return _THOUGHT.sub("", reply)


def _verdict_lists(text: str) -> Iterator[object]:
    """Yield what stands under "verdicts" in each JSON object of a text."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = None, start
        if isinstance(value, dict) and "verdicts" in value:
            yield value["verdicts"]
            start = text.find("{", end)
        else:  # it may stand inside
            start = text.find("{", start + 1)


def _numbered(entries: object) -> list[tuple[int, bool]]:
    """Return (step, is good) of each entry of a list of verdicts."""
    if not isinstance(entries, list):
        raise VerdictError('"verdicts" is not a list')
    pairs = []
    for entry in entries:
        if not isinstance(entry, dict) or not {"step", "verdict"} <= entry.keys():
            raise VerdictError('an entry of "verdicts" has no "step" and "verdict"')
        step, word = entry["step"], entry["verdict"]
        if isinstance(step, str) and step.strip().isdecimal():
            step = int(step)
        if not isinstance(step, int) or isinstance(step, bool):
            raise VerdictError(f'"step" is {step!r}, not a whole number')
        flag = _WORDS.get(word.strip(_AROUND).lower()) if isinstance(word, str) else None
        if flag is None:
            raise VerdictError(f'"verdict" of step {step} is {word!r}, neither GOOD nor BAD')
        pairs.append((step, flag))
    return pairs


def _in_order(pairs: Sequence[tuple[int, bool]], *, n_steps: int) -> tuple[bool, ...]:
    """Return the flags by step, the steps numbered from 0 or all of them from 1."""
    steps = sorted(step for step, _ in pairs)
    for first in (0, 1):
        if steps == list(range(first, first + n_steps)):
            return tuple(flag for _, flag in sorted(pairs))
    shown = ", ".join(map(str, steps[:20]))
    raise VerdictError(f"it judges steps {shown}; there are steps 0 to {n_steps - 1}")


def verdict_rates(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Return `adca/judge_<status>_rate` of each status: shares of the trajectories asked about.

    0 for every status when nothing was asked.
    """
    statuses = [verdict.status for verdict in verdicts]
    return {
        f"adca/judge_{status.value}_rate": statuses.count(status) / max(1, len(statuses))
        for status in VerdictStatus
    }
