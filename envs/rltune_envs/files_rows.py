"""Rows of a JSON file with their numbers, and typed access to their keys.

A file is one JSON list, or one JSON object a line, whatever its suffix.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rltune_envs.characters import half_character
from rltune_envs.errors import TaskError

Row = Mapping[str, Any]
_SHOWN = 5


class RowError(Exception):
    """A row cannot be used; the message says why, `unusable` says where."""


def read_rows(path: str | Path) -> list[tuple[int, object]]:
    """Return the values of a file with their numbers: items of the list, or lines; both from 1.

    Raises:
        TaskError: The file cannot be read, is neither a JSON list nor JSON lines, is empty, or
            holds half of a character.

    """
    text = _read_text(path)
    rows = _list_items(path, text) if text.lstrip()[:1] == "[" else list(_lines(path, text))
    if not rows:
        raise TaskError(f"{path}: holds no row; it must be a JSON list, or one JSON object a line")
    for number, value in rows if "\\ud" in text.lower() else ():
        if half := half_of_json(value):
            raise TaskError(f"{path}:{number}: it holds {half}, half of a character; repair it")
    return rows


def half_of_json(value: object) -> str:
    """Return the first half of a character in a JSON value; empty where all texts are whole."""
    return half_character(json.dumps(value, ensure_ascii=False))


def _read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: is not UTF-8 text; save it as UTF-8: {error}") from error


def _list_items(path: str | Path, text: str) -> list[tuple[int, object]]:
    try:
        return list(enumerate(json.loads(text), start=1))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path}: begins as a JSON list but is not one: {error}") from error


def _lines(path: str | Path, text: str) -> Iterator[tuple[int, object]]:
    # Not splitlines(): JSON strings may hold U+2028 and other separators that it splits at.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TaskError(
                f"{path}:{number}: this line is not JSON: {error}. A file must be one JSON list, "
                "or one JSON object a line"
            ) from error


def as_row(value: object) -> Row:
    """Return a value as a row.

    Raises:
        RowError: It is not a JSON object.

    """
    if not isinstance(value, dict):
        raise RowError(f"a row must be a JSON object, this is {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """Return what a JSON value is, in words for a message."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names[type(value)]


def value_of(row: Row, key: str) -> Any:
    """Return the value of a key.

    Raises:
        RowError: The key is missing.

    """
    if key not in row:
        raise RowError(f"the key {key!r} is missing; found {', '.join(row) or 'none'}")
    return row[key]


def text_of(row: Row, key: str) -> str:
    """Return the text of a key, stripped.

    Raises:
        RowError: The key is missing, or its value is not text.

    """
    value = value_of(row, key)
    if not isinstance(value, str):
        raise RowError(f"{key} must be text, it is {kind_of(value)}")
    if not value.strip():
        raise RowError(f"{key} is empty")
    return value.strip()


def list_of(row: Row, key: str) -> list[Any]:
    """Return the list of a key.

    Raises:
        RowError: The key is missing, or its value is not a list.

    """
    value = value_of(row, key)
    if not isinstance(value, list):
        raise RowError(f"{key} must be a list, it is {kind_of(value)}")
    return value


def texts_of(row: Row, key: str) -> list[str]:
    """Return the list of texts of a key, unchanged.

    Raises:
        RowError: The key is missing, or its value is not a list of texts.

    """
    values = list_of(row, key)
    for value in values:
        if not isinstance(value, str):
            raise RowError(f"{key} must be a list of texts, it holds {kind_of(value)}")
    return values


def number_of(row: Row, key: str) -> int:
    """Return the whole number of a key.

    Raises:
        RowError: The key is missing, or its value is not a whole number.

    """
    value = value_of(row, key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowError(f"{key} must be a whole number, it is {kind_of(value)}")
    return value


def unusable(path: str | Path, reasons: Mapping[int, str], *, total: int, kind: str) -> TaskError:
    """Return the error that names the first unusable rows and counts all."""
    lines = [
        f"{path}: {len(reasons)} of {total} rows cannot be used as {kind}; remove or repair them:",
        *(f"{path}:{number}: {reason}" for number, reason in list(reasons.items())[:_SHOWN]),
    ]
    if len(reasons) > _SHOWN:
        lines.append(f"{path}: and {len(reasons) - _SHOWN} more")
    return TaskError("\n".join(lines))
