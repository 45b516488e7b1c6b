"""Planning tokens: where a response plans its way rather than carries it out.

Phrases are searched in decoded text, and their characters mapped back to tokens. So words of
several tokens, apostrophes, commas and newlines match, and exactly the tokens of a phrase are
marked.

Differs from textpolicy, which joins the tokenizer's pieces with spaces: it misses words of several
tokens and phrases with an apostrophe, a comma or a newline, and marks two or three tokens to the
left of a phrase.
"""

import re
from collections.abc import Sequence
from functools import cache

DEFAULT_GRAMS: tuple[str, ...] = (
    # hesitation
    "wait let me",
    "let me think",
    "on second thought",
    # verification
    "let me check",
    "let me verify",
    "is this right",
    "double check",
    # backtracking
    "try another approach",
    "go back and",
    "start over",
    "that's not right",
    "that doesn't work",
    # alternatives
    "another way to",
    "or we could",
    "what if we",
    # metacognition
    "notice that",
    "the key is",
    "the key insight",
)
"""textpolicy's strategic grams, in its five families."""

Span = tuple[int, int]
"""First character, and the one after the last."""

_RIGHT_QUOTE = "\N{RIGHT SINGLE QUOTATION MARK}"
# Tokenizers of whole words decode "that's" as "that ' s".
_APOSTROPHE = rf"\s?['{_RIGHT_QUOTE}]\s?"
_PAUSE = r"[\s,;:.\-\N{HORIZONTAL ELLIPSIS}\N{EN DASH}\N{EM DASH}]+"


def planning_spans(text: str, grams: Sequence[str]) -> list[Span]:
    """Return the spans of phrases in a text, in order, also overlapping ones.

    Case does not matter, and both apostrophes are equal. Between two words there may be white
    space, commas, colons, stops and dashes ("Wait, let me", "double-check"). A phrase matches whole
    words only.

    Args:
        text: What the policy wrote.
        grams: Phrases; a tag such as `<search>` is one too.

    Raises:
        ValueError: A phrase has no word.

    """
    spans = [match.span(1) for gram in grams for match in _pattern(gram).finditer(text)]
    return sorted(set(spans))


@cache
def _pattern(gram: str) -> re.Pattern[str]:
    words = [re.escape(word.replace(_RIGHT_QUOTE, "'")) for word in gram.split()]
    if not words:
        raise ValueError(f"{gram!r} is not a phrase; give at least one word.")
    body = _PAUSE.join(words).replace("'", _APOSTROPHE)
    # A tag has no word characters at its ends, so there is no word boundary to require.
    start = r"(?<!\w)" if re.match(r"\w", gram.strip()) else ""
    end = r"(?!\w)" if re.search(r"\w$", gram.strip()) else ""
    # Looked ahead for, so that a phrase may begin inside the one before.
    return re.compile(rf"{start}(?=({body}){end})", re.IGNORECASE)


def planning_tokens(offsets: Sequence[Span], spans: Sequence[Span]) -> list[bool]:
    """Return, for each token, whether it overlaps a span.

    Args:
        offsets: Characters of each token. A token without characters belongs to the span around
            it, like the first bytes of an apostrophe, and to none at a span's border.
        spans: Characters of the phrases.

    """
    return [any(start < last and first < end for first, last in spans) for start, end in offsets]
