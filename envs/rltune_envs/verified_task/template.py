r"""A prompt template: the names of columns in braces, `{question}`; all else is literal.

Braces around anything but a name are literal too, so that `\boxed{}` needs no doubling; `{{x}}`
writes `{x}`. A name with blanks or signs counts where a column has it.
"""

import math
import re
from collections.abc import Collection
from string import ascii_uppercase

from rltune_envs.choices import did_you_mean
from rltune_envs.files_rows import Row, RowError, texts_of, value_of

_PLACE = re.compile(r"\{\{([^{}]+)\}\}|\{([^{}]+)\}")
_NAME = re.compile(r"\w+")


def columns_of(template: str) -> tuple[str, ...]:
    """Return the columns that a template must find in a row, once each."""
    return tuple(dict.fromkeys(name for name in _shown(template) if _NAME.fullmatch(name)))


def shows(template: str, column: str) -> bool:
    """Return whether a template shows a column."""
    return column in _shown(template)


def _shown(template: str) -> list[str]:
    return [name for _, name in _PLACE.findall(template) if name]


def require_columns(where: str, columns: Collection[str], known: Collection[str]) -> None:
    """Refuse columns that a file does not have.

    Raises:
        RowError: It names the first, the columns of the row, and a near one.

    """
    for column in columns:
        if column not in known:
            has = ", ".join(known) or "none"
            near = did_you_mean(column, known)
            raise RowError(f"the column {column!r} ({where}) is missing; the row has {has}.{near}")


def fill(template: str, row: Row) -> str:
    """Return a template with the values of a row; a list of texts has a line and letter for each.

    Raises:
        RowError: A column is missing, its value is no text, number or list of texts, or no column
            is shown.

    """
    if not any(name in row or _NAME.fullmatch(name) for name in _shown(template)):
        raise RowError(
            f"env.template shows none of its columns ({', '.join(row) or 'none'}), so that all "
            "rows would ask the same; put the name of one in braces"
        )

    def text(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in row and not _NAME.fullmatch(name):
            return match[0]
        if match[1]:
            return f"{{{name}}}"
        return _lettered(row, name) if isinstance(row.get(name), list) else plain_text(row, name)

    return _PLACE.sub(text, template)


def _lettered(row: Row, column: str) -> str:
    """Return a list of texts as lines `(A) first`, `(B) second`."""
    texts = texts_of(row, column)
    if len(texts) > len(ascii_uppercase):
        raise RowError(f"{column} has {len(texts)} texts; at most 26 can be shown with letters")
    pairs = zip(ascii_uppercase, texts, strict=False)
    return "\n".join(f"({letter}) {text.strip()}" for letter, text in pairs)


def plain_text(row: Row, column: str) -> str:
    """Return the value of a column as text: a text, or a number as it is written.

    Raises:
        RowError: The column is missing, or its value is something else, or empty.

    """
    value = value_of(row, column)
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if isinstance(value, bool) or not (isinstance(value, str | int | float) and is_finite):
        shown = "empty (null)" if value is None else f"{value!r:.40}"
        raise RowError(f"{column} is {shown}; give text or a number")
    if not (text := str(value).strip()):
        raise RowError(f"{column} is empty; give text or a number")
    return text
