"""Texts that say which trials have which value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rltune.spec.problems import show


def by_value(values: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    """Return shown value -> trial ids, each once, in order of appearance."""
    groups: dict[str, list[str]] = {}
    for trial_id, value in values:
        names = groups.setdefault(show(value), [])
        if trial_id not in names:
            names.append(trial_id)
    return groups


def sides(groups: Mapping[str, Sequence[str]]) -> str:
    """Return `x in a, b; y in c`, long lists of trials shortened."""
    return "; ".join(f"{value} in {few(trials)}" for value, trials in groups.items())


def few(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
