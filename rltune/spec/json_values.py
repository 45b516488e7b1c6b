"""What of a free mapping JSON cannot record."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from rltune.spec.paths import KeyPath

Lost = tuple[KeyPath, str, str]
"""Where it stands, what is wrong with it, and what to do."""


def not_json(value: Any, at: KeyPath = ()) -> Iterator[Lost]:
    """Yield every key that is not text, and every value that is not JSON."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield from not_json(item, (*at, key))
            else:
                yield _lost_key(key, at)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from not_json(item, (*at, str(i)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield at, f"{value!r} is not a finite number.", "JSON keeps no other."
    elif isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        yield at, f"{value!r} is not Unicode text.", "Write whole characters."
    elif value is not None and not isinstance(value, bool | int | float | str):
        action = "Give numbers, text, true, false, null, lists and mappings of them."
        yield at, f"{value!r} is not a JSON value.", action


def _lost_key(key: Any, at: KeyPath) -> Lost:
    shown = json.dumps(key, default=str)
    what = f"{shown} is not text, and JSON keeps no other keys."
    return (*at, shown), what, f"Put it in quotes, {shown!r}, if text will do."
