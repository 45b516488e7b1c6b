"""Dotted keys and key paths: `loss.kl_loss_coef` is `("loss", "kl_loss_coef")`.

Below an open section keys are free and may hold dots. They are never split, and in a
dotted key they stand in quotes: `env.arguments.weights."qwen2.5"`.
"""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

KeyPath = tuple[str, ...]

OPEN_SECTIONS = ("env.arguments", "env.eval", "advantage.arguments")
"""Keys whose value is a mapping with free keys."""

BY_ENV = "by_env"
"""Section of a profile with what it sets for one kind of env only."""

_OPEN = frozenset(tuple(name.split(".")) for name in OPEN_SECTIONS)
_PART = re.compile(r'"(?:[^"\\]|\\.)*"(?=\.|$)|[^.]+')
_UNSAFE = re.compile(r'[."\\]|^$')


@lru_cache(maxsize=1 << 14)  # the same keys of every config, many times over
def is_open(path: tuple[Any, ...]) -> bool:
    """Return whether a key path is an open section or lies in one."""
    return _section_length(path) is not None


def _section_length(path: tuple[Any, ...]) -> int | None:
    """Return how many parts of a key path name the open section that it lies in, if it does."""
    first = 2 if path[:1] == (BY_ENV,) else 0
    ends = (first + len(section) for section in _OPEN if path[first:][: len(section)] == section)
    return next(ends, None)


def dotted(path: Iterable[Any]) -> str:
    """Return a key path as a dotted key; `key_path` is its inverse."""
    parts = tuple(path)
    return _dotted(parts, tuple(map(type, parts)))  # as keys of a cache, 1 and true are one


@lru_cache(maxsize=1 << 14)  # likewise
def _dotted(parts: tuple[Any, ...], _types: tuple[type, ...]) -> str:
    n = _section_length(parts) or len(parts)
    return ".".join([*map(str, parts[:n]), *map(quoted, parts[n:])])


def below(path: Iterable[Any]) -> str:
    """Return the dotted key of a path within an open section."""
    return ".".join(map(quoted, path))


def quoted(part: object) -> str:
    """Return a key of an open section: in quotes where a dotted key would be read otherwise."""
    text = part if isinstance(part, str) else json.dumps(part)
    return json.dumps(text, ensure_ascii=False) if _UNSAFE.search(text) else text


def key_path(key: str) -> KeyPath:
    """Return the parts of a dotted key; a part in quotes stays whole, without its quotes."""
    if '"' not in key:
        return tuple(key.split("."))
    return tuple(_unquoted(part) for part in _PART.findall(key))


def _unquoted(part: str) -> str:
    try:
        return str(json.loads(part)) if part.startswith('"') else part
    except ValueError:  # a stray quote is part of the name
        return part
