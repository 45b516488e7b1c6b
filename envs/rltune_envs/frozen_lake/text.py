"""Texts about a lake for the policy: instructions, boards and coordinates."""

from rltune_envs.frozen_lake.rules import (
    ACTIONS,
    FROZEN,
    GOAL,
    HOLE,
    PLAYER,
    PLAYER_IN_HOLE,
    PLAYER_ON_GOAL,
    Lake,
    render,
)
from rltune_envs.grid_text import actions_text, legend_text

_LEGEND = (
    f"{PLAYER}: player, {FROZEN}: frozen, {HOLE}: hole, {GOAL}: goal, "
    f"{PLAYER_IN_HOLE}: player in hole, {PLAYER_ON_GOAL}: player on goal"
)
SYMBOLS = PLAYER + FROZEN + HOLE + GOAL + PLAYER_IN_HOLE + PLAYER_ON_GOAL
_TASK = (
    "You're a helpful assistant. You are solving the FrozenLake puzzle. You are the player and you "
    "need to walk over the ice to the goal. Falling into a hole ends the game. Walking against the "
    "border leaves you where you are.\n"
)
_SURE = "The ice is not slippery: every action moves you where it says.\n"


def instruction(*, observation: str, size: int, success_rate: float, limit: int) -> str:
    """Return the rules in words, with what is needed to read the observation.

    Args:
        observation: One of `grid_text.OBSERVATIONS`.
        size: Rows, and columns.
        success_rate: Probability that a step goes where it is aimed.
        limit: Actions of one turn.

    """
    text = _TASK + (_SURE if success_rate == 1 else _slippery(success_rate))
    if observation != "grid":
        text += (
            f"Coordinates are (row, col), counted from 0: from (0, 0) in the top left corner to "
            f"({size - 1}, {size - 1}) in the bottom right one.\n"
        )
    if observation != "coord":
        text += legend_text(_LEGEND)
    return text + actions_text(ACTIONS, limit=limit)


def board(lake: Lake, player: int, *, observation: str) -> str:
    """Return the state as a grid, as coordinates, or as both."""
    grid = "\n".join(render(lake, player))
    if observation == "grid":
        return grid
    listed = _coordinates(lake, player)
    return listed if observation == "coord" else f"Coordinates:\n{listed}\nGrid Map:\n{grid}"


def _slippery(success_rate: float) -> str:
    sides = (1 - success_rate) / 2
    return (
        f"The ice is slippery: an action moves you where it says with probability "
        f"{success_rate:.4g}, and to each of the two sides of that direction with probability "
        f"{sides:.4g}. It never moves you backwards.\n"
    )


def _coordinates(lake: Lake, player: int) -> str:
    holes = [cell for cell in range(lake.size**2) if lake.is_hole(cell)]
    lines = {
        "Board size": f"{lake.size} rows, {lake.size} columns",
        "Start": _place(lake, lake.start),
        "Goal": _place(lake, lake.goal),
        "Player": _place(lake, player),
        "Holes": ", ".join(_place(lake, hole) for hole in holes) or "none",
    }
    return "\n".join(f"{name}: {value}" for name, value in lines.items())


def _place(lake: Lake, cell: int) -> str:
    row, column = divmod(cell, lake.size)
    return f"({row}, {column})"
