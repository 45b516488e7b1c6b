"""Checks of the environments' arguments, and suggestions for misspelt ones."""

from collections.abc import Collection
from difflib import get_close_matches

PROMPTS = ("natural", "compact")


def did_you_mean(given: str, choices: Collection[str]) -> str:
    """Return ` Did you mean 'grid'?`, or nothing where no choice is near."""
    near = get_close_matches(given, choices, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def require_choice(key: str, given: str, choices: Collection[str]) -> None:
    """Refuse a value that is not one of the choices.

    Raises:
        ValueError: It names key, value and choices.

    """
    if given not in choices:
        hint = did_you_mean(given, choices)
        raise ValueError(f"{key} is {given!r}; choose one of {', '.join(choices)}.{hint}")


def require_at_least(least: int, **numbers: int) -> None:
    """Refuse numbers, by their names, that are below the least one.

    Raises:
        ValueError: It names the first.

    """
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name}: {number!r} is too small; give {least} or more")


def require_penalty(format_penalty: float) -> None:
    """Refuse a penalty that rewards, or is not finite.

    Raises:
        ValueError: It is above 0, NaN or infinite.

    """
    if not -float("inf") < format_penalty <= 0:
        raise ValueError(f"format_penalty is {format_penalty!r}; give 0 or a negative number")
