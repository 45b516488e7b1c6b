"""The words of a text, also where a script writes no blanks between them.

Chinese, Japanese, Thai, Lao, Khmer and Burmese are written without blanks. Each of their characters
counts as one word: the unit of F1, of containment and of word limits. A search index takes pairs of
neighbouring characters instead, since one character alone finds too much.
"""

import re
import unicodedata

_UNSPACED = (
    "\u3005-\u3007"  # Han iteration mark, closing mark, zero
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0eff\u1780-\u17d3\u1000-\u1049"  # Thai, Lao, Khmer, Burmese
)
_UNIT = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")
_RUN = re.compile(f"[{_UNSPACED}]+|[^\\W{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_BESIDE = re.compile(f"(?<=[{_UNSPACED}])\\s+|\\s+(?=[{_UNSPACED}])")


def units(text: str) -> list[str]:
    """Return the words of a text: what blanks part, and each character of a script without them."""
    return _UNIT.findall(text)


def has_unspaced(text: str) -> bool:
    """Return whether a text holds a character of a script without blanks."""
    return _IS_UNSPACED.search(text) is not None


def first_units(text: str, n: int) -> str:
    """Return the start of a text up to its `n`-th word, with single blanks."""
    line = " ".join(text.split())
    ends = [match.end() for match in _UNIT.finditer(line)]
    return line if len(ends) <= n else line[: ends[n - 1]] if n > 0 else ""


def without_inner_blanks(text: str) -> str:
    """Return a text without the blanks beside characters of a script that writes none."""
    return _BESIDE.sub("", text)


def terms(text: str) -> list[str]:
    """Return what a search index knows of a text, in Unicode form NFKC with case folded.

    A run of letters, digits and underscores is one term. A run in a script without blanks is the
    pairs of its neighbouring characters, a single character is itself.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    if folded.isascii():
        return _RUN.findall(folded)
    return [term for run in _RUN.findall(folded) for term in _pairs(run)]


def _pairs(run: str) -> list[str]:
    if len(run) < 2 or not has_unspaced(run):
        return [run]
    return [run[start : start + 2] for start in range(len(run) - 1)]
