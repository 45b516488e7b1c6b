"""Strangers' text on the page: invisible characters by their code."""

import unicodedata

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, direction marks, zero widths, separators


def shown(text: str) -> str:
    """Return a text with what is invisible by its code; line ends and tabs stay."""
    return "".join(_shown(char) for char in text.replace("\r\n", "\n"))


def _shown(char: str) -> str:
    is_hidden = char not in "\n\t" and unicodedata.category(char) in _HIDDEN
    return f"U+{ord(char):04X}" if is_hidden else char
