r"""A prompt template: the names of columns in braces, `{question}`; all else is literal.

Braces around anything but a name are literal too, so that `\boxed{}` needs no doubling; `{{x}}`
writes `{x}`.
"""

import re
from collections.abc import Collection, Sequence
from string import ascii_uppercase

from rltune_envs.choices import did_you_mean
from rltune_envs.files_rows import Row, RowError, texts_of, value_of

_PLACE = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


def columns_of(template: str) -> tuple[str, ...]:
    """Return the columns that a template shows, once each."""
    return tuple(dict.fromkeys(name for _, name in _PLACE.findall(template) if name))


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
        RowError: A column is missing, or its value is no text, number or list of texts.

    """

    def text(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        is_list = isinstance(row.get(match[2]), list)
        return lettered(texts_of(row, match[2])) if is_list else plain_text(row, match[2])

    return _PLACE.sub(text, template)


def lettered(choices: Sequence[str]) -> str:
    """Return choices as lines `(A) first`, `(B) second`."""
    return "\n".join(
        f"({letter}) {choice.strip()}"
        for letter, choice in zip(ascii_uppercase, choices, strict=False)
    )


def plain_text(row: Row, column: str) -> str:
    """Return the value of a column as text: a text, or a number as it is written.

    Raises:
        RowError: The column is missing, or its value is something else, or empty.

    """
    value = value_of(row, column)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        shown = "empty (null)" if value is None else f"{value!r:.40}"
        raise RowError(f"{column} is {shown}; give text or a number")
    if not (text := str(value).strip()):
        raise RowError(f"{column} is empty; give text or a number")
    return text
