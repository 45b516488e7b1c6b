"""Text of strangers inside Markdown: it stays text, on one line, of a known length.

Hypotheses and notes quote what programs and agents wrote: table bars, fences, HTML, tool-call
markup. Nothing of it may end a table, open a fence or become a tag.
"""

import re
import unicodedata

_MARKS = re.compile(r"[\\`*\[\]<>|~&$!#]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.=+,@/~:\-]+")
_LONGEST_ID = 200
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, direction marks, zero widths, separators


def shown(text: str) -> str:
    """Return a text with what is invisible by its code; line ends and tabs stay."""
    return "".join(_shown(char) for char in text.replace("\r\n", "\n"))


def _shown(char: str) -> str:
    is_hidden = char not in "\n\t" and unicodedata.category(char) in _HIDDEN
    return f"U+{ord(char):04X}" if is_hidden else char


def visible(text: str) -> str:
    """Return the text on one line, its line ends as a sign, what is invisible by its code."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    return shown(lines).replace("\n", " ⏎ ").replace("\t", " ")


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters, and how many there were when that cuts."""
    return text if len(text) <= limit else f"{text[:limit]}… ({limit} of {len(text)} characters)"


def inline(text: str, limit: int) -> str:
    """Return the text for a table cell or a list item: cut, then on one line, then escaped."""
    whole = visible(cut(text.strip(), limit))
    escaped = _MARKS.sub(lambda match: _ESCAPES.get(match[0], f"\\{match[0]}"), whole)
    return escaped.replace("://", ":\\/\\/").strip()


_ESCAPES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def code_id(exp_id: str) -> str:
    """Return an id to copy; an unusual or very long one is escaped text, not code."""
    is_plain = len(exp_id) <= _LONGEST_ID and _PLAIN_ID.fullmatch(exp_id)
    return f"`{exp_id}`" if is_plain else inline(exp_id, _LONGEST_ID)


def number(value: float | None, *, is_signed: bool = False) -> str:
    """Return a metric with four decimals, or a dash."""
    if value is None:
        return "–"
    return f"{value:+.4f}" if is_signed else f"{value:.4f}"


def table(headers: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table whose cells are escaped already."""
    lines = [headers, ["---"] * len(headers), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def within_budget(lines: list[str], budget: int, noun: str) -> list[str]:
    """Return the first lines that fit into `budget` bytes, and a line that says what does not.

    At least one line stays.
    """
    used = 0
    for i, line in enumerate(lines):
        used += len(line.encode()) + 1
        if used > budget and i > 0:
            return [*lines[:i], "", f"{len(lines) - i} more {noun} not shown for length."]
    return lines
