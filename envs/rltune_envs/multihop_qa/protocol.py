"""Search-R1's turn protocol: what a response asks for, and what the policy reads next.

A response is `<think>..</think>` (in the natural prompt only) and then one action,
`<search> query </search>` or `<answer> text </answer>`. The first complete one counts; the rest is
ignored. An `<information>` block that the policy wrote itself holds no action and is no evidence;
it stays in the conversation as it was sampled, and is counted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.words import first_units, units

SEARCH, ANSWER = "search", "answer"
THINK, _THINK_END = "<think>", "</think>"
NO_THOUGHT = f"{THINK}{_THINK_END} "
_TAG = re.compile(r"<(\s*/?\s*(?:think|search|information|answer)\b[^<>]*)>", re.IGNORECASE)
_INFORMATION_TAG = re.compile(r"<\s*information\b[^<>]*>", re.IGNORECASE)

NOTHING_FOUND = "Nothing found."
INVALID, NO_SEARCH_LEFT, SEARCH_FAILED = "Invalid.", "No search left.", "Search failed."
"""Notices of the compact prompt; the natural one explains."""

_HOW_TO_GO_ON = (
    "Write your thoughts between <think> and </think>, and then either a query between <search> "
    "and </search>, or the final answer between <answer> and </answer>."
)
_EXPLAINED = {
    INVALID: f"The last response could not be read. {_HOW_TO_GO_ON}",
    NO_SEARCH_LEFT: "No search is left. Give the final answer between <answer> and </answer>, "
    "after your thoughts between <think> and </think>.",
    SEARCH_FAILED: "The search failed; this was not your fault. Search again, or answer.",
}
_INSTRUCTION = (
    "Answer the question of the user. Whenever you have read something new, first think about it "
    "between <think> and </think>. If you lack some knowledge after that, search for it: write "
    "<search> query </search>, and the best passages come back between <information> and "
    "</information>. You can search at most {max_searches} times, and you have {max_turns} "
    "responses in all. As soon as you need no more, write the answer between <answer> and "
    "</answer>, in a few words and without an explanation. For example: <answer> Beijing </answer>."
)


@dataclass(frozen=True, slots=True)
class Action:
    """One search or one answer.

    Attributes:
        kind: `search` or `answer`.
        text: The query or the answer, in one line; never empty.

    """

    kind: str
    text: str

    @property
    def name(self) -> str:
        """Return it as records write it: `search: query`."""
        return f"{self.kind}: {self.text}"


def parse_response(response: str, *, needs_think: bool) -> Action | None:
    """Return the action of a response; None where it has none, or an empty one.

    Plain searches keep the time linear in the length of the response.

    Args:
        response: The policy's own text of one turn, its given prefix included.
        needs_think: Require that it begins with a complete think block.

    """
    if needs_think:
        if not response.lstrip().startswith(THINK):
            return None
        _, end, response = response.partition(_THINK_END)
        if not end:
            return None
    blocks = [_first_block(response, kind) for kind in (SEARCH, ANSWER)]
    complete = [block for block in blocks if block is not None]
    if not complete:
        return None
    start, action = min(complete, key=lambda block: block[0])
    return action if action.text and not invents_information(response[:start]) else None


def invents_information(response: str) -> bool:
    """Return whether a response opens an information block itself, in its thoughts or anywhere."""
    return _INFORMATION_TAG.search(response) is not None


def _first_block(text: str, kind: str) -> tuple[int, Action] | None:
    """Return the start and the content of the first complete block of a kind."""
    start = text.find(f"<{kind}>")
    if start < 0:
        return None
    begin = start + len(kind) + 2
    end = text.find(f"</{kind}>", begin)
    return None if end < 0 else (start, Action(kind, one_line(text[begin:end])))


def parse_name(name: str) -> Action:
    """Return the action that a name such as `search: query` stands for.

    Raises:
        ValueError: It is not such a name.

    """
    kind, _, text = name.partition(": ")
    if kind not in (SEARCH, ANSWER) or not text.strip():
        raise ValueError(f"{name!r} is not an action; write 'search: QUERY' or 'answer: TEXT'")
    return Action(kind, text)


def format_action(action: Action, *, is_compact: bool) -> str:
    """Write an action as the block that `parse_response` reads."""
    opening, closing = around_action(action.kind, is_compact=is_compact)
    return f"{opening}{action.text}{closing}"


def around_action(kind: str, *, is_compact: bool) -> tuple[str, str]:
    """Return the tags around the text of an action."""
    blank = "" if is_compact else " "
    return f"<{kind}>{blank}", f"{blank}</{kind}>"


def one_line(text: str) -> str:
    """Return a text with all white space, line breaks included, as single blanks."""
    return " ".join(text.split())


def answer_name(text: str) -> str:
    """Return the name of the action that gives an answer."""
    return Action(ANSWER, one_line(text)).name


def instruction(*, max_turns: int, max_searches: int) -> str:
    """Return the system prompt of the natural prompt."""
    return _INSTRUCTION.format(max_turns=max_turns, max_searches=max_searches)


def notice(text: str, *, is_compact: bool) -> str:
    """Return a notice of this module in the words of the prompt."""
    return f" {text}" if is_compact else _EXPLAINED[text]


def with_limits(text: str, *, searches_left: int, turns_left: int) -> str:
    """Return an observation of the natural prompt with the searches and responses left."""
    return f"{text}\nSearches left: {searches_left}. Responses left: {turns_left}."


def information(
    passages: Sequence[Passage], *, max_words: int, is_compact: bool
) -> tuple[str, tuple[Passage, ...]]:
    """Return the block that shows passages, and the passages of which it shows some text.

    Tags inside the passages lose their angle brackets, so that the block ends where it seems to.

    Args:
        passages: What was found, best first.
        max_words: Most words shown, titles included; the block is always closed. Each character of
            a script without blanks is a word.
        is_compact: Show the texts alone.

    """
    lines: list[str] = []
    shown: list[Passage] = []
    left = max_words
    for number, passage in enumerate(passages, start=1):
        if left <= 0:
            break
        heading = "" if is_compact else f"Doc {number} (Title: {passage.title}) "
        line = first_units(_TAG.sub(r"[\1]", heading + passage.text), left)
        n_words = len(units(line))
        left -= n_words
        lines.append(line)
        if n_words > len(units(heading)):
            shown.append(passage)
    if is_compact:
        return f" <information>{' '.join(lines) or NOTHING_FOUND}</information>", tuple(shown)
    text = "\n".join(lines) or NOTHING_FOUND
    return f"<information>{text}</information>", tuple(shown)
