"""The common part of the natural prompts of grid games."""

from collections.abc import Sequence

from rltune_envs.parse import SEPARATOR

OBSERVATIONS = ("grid", "coord", "grid_coord")
_FORMAT = (
    "Always output: <think> [Your thoughts] </think> <answer> [your answer] </answer> with no "
    "extra text. Strictly follow this format. Max response length: 120 words."
)
_WARNING = (
    "The last response was not a valid list of actions; what followed the first invalid action "
    "was not executed.\n"
)


def legend_text(legend: str) -> str:
    """Return the line that explains the symbols."""
    return f"The meaning of each symbol in the state is:\n {legend}\n"


def actions_text(names: Sequence[str], *, limit: int) -> str:
    """Return the end of the instruction: the actions, and how many a turn allows."""
    return (
        f"Your available actions are:\n {', '.join(names)}\n"
        f'You can make up to {limit} actions, separated by the action separator " {SEPARATOR} "'
    )


def turn_text(
    shown: str, *, turn: int, actions_left: int, reward: float | None, valid: bool
) -> str:
    """Return the user message of one turn.

    Args:
        shown: The state.
        turn: Number of the next turn, from 1.
        actions_left: Actions left in the episode.
        reward: Reward of the last turn; None before the first.
        valid: Whether the last response was valid.

    """
    feedback = "" if reward is None else f"Reward:\n{reward:g}\n\n"
    warning = "" if valid else _WARNING
    return (
        f"{feedback}Turn {turn}:\nState:\n{shown}\n{warning}"
        f"You have {actions_left} actions left. {_FORMAT}"
    )
