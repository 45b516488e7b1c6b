"""What the policy reads: instructions, boards and coordinates. No rules and no state."""

from rltune_envs.parse import SEPARATOR
from rltune_envs.sokoban.rules import (
    ACTIONS,
    BOX,
    BOX_ON_TARGET,
    FLOOR,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    WALL,
    Level,
    State,
    render,
)

OBSERVATIONS = ("grid", "coord", "grid_coord")
_MEANINGS = {
    WALL: "wall", FLOOR: "empty", TARGET: "target", BOX_ON_TARGET: "box on target", BOX: "box",
    PLAYER: "player", PLAYER_ON_TARGET: "player on target",
}  # fmt: skip
_DRAWN = "".join(_MEANINGS)
SYMBOLS = {  # one symbol for each meaning, in the order above
    "standard": _DRAWN,
    "letters": "WETDBPQ",
    "xsb": "#-.*$@+",
}
_LISTED = {  # lines of the coordinate block; walls are left out
    "Targets": TARGET, "Boxes": BOX, "Boxes on target": BOX_ON_TARGET, "Player": PLAYER,
    "Player on target": PLAYER_ON_TARGET,
}  # fmt: skip

_TASK = (
    "You're a helpful assistant. You are solving the Sokoban puzzle. You are the player and you "
    "need to push all boxes to targets. When you are right next to a box, you can push it by "
    "moving in the same direction. You cannot push a box through a wall, and you cannot pull a "
    "box.\n"
)
_COORDINATES = (
    "Coordinates are (row, col), counted from 0; (0, 0) is the top left corner. Up lowers the row "
    "by 1, Down raises it, Left lowers the column by 1, Right raises it. Each target, box and "
    "player is listed once; a target that a box or the player is on is listed with these. "
    "Walls are not listed.\n"
)
_FORMAT = (
    "Always output: <think> [Your thoughts] </think> <answer> [your answer] </answer> with no "
    "extra text. Strictly follow this format. Max response length: 120 words."
)
_WARNING = (
    "The last response was not a valid list of actions; what followed the first invalid action "
    "was not executed.\n"
)


def instruction(*, observation: str, symbols: str, limit: int) -> str:
    """Return the rules in words, with what is needed to read the observation.

    Args:
        observation: One of `OBSERVATIONS`.
        symbols: A name in `SYMBOLS`.
        limit: Actions of one turn.

    """
    text = _TASK
    if observation != "grid":
        text += _COORDINATES
    if observation != "coord":
        pairs = zip(SYMBOLS[symbols], _MEANINGS.values(), strict=True)
        legend = ", ".join(f"{symbol}: {meaning}" for symbol, meaning in pairs)
        text += f"The meaning of each symbol in the state is:\n {legend}\n"
    return (
        f"{text}Your available actions are:\n {', '.join(ACTIONS)}\n"
        f'You can make up to {limit} actions, separated by the action separator " {SEPARATOR} "'
    )


def board(level: Level, state: State, *, observation: str, symbols: str) -> str:
    """Return the state as a grid, as coordinates, or as both."""
    rows = render(level, state)
    table = str.maketrans(_DRAWN, SYMBOLS[symbols])
    grid = "\n".join(rows).translate(table)
    if observation == "grid":
        return grid
    listed = _coordinates(rows)
    return listed if observation == "coord" else f"Coordinates:\n{listed}\nGrid Map:\n{grid}"


def inner_board(level: Level, state: State) -> str:
    """Return the cells inside the border, row by row without breaks."""
    return "".join(row[1:-1] for row in render(level, state)[1:-1])


def turn_text(
    shown: str, *, turn: int, actions_left: int, reward: float | None, valid: bool
) -> str:
    """Return the user message of one turn.

    Args:
        shown: The state, from `board`.
        turn: Number of the turn that comes now, from 1.
        actions_left: Actions that the episode still allows.
        reward: What the last turn earned; None before the first.
        valid: Whether the last response was good.

    """
    feedback = "" if reward is None else f"Reward:\n{reward:g}\n\n"
    warning = "" if valid else _WARNING
    return (
        f"{feedback}Turn {turn}:\nState:\n{shown}\n{warning}"
        f"You have {actions_left} actions left. {_FORMAT}"
    )


def _coordinates(rows: tuple[str, ...]) -> str:
    """List where things are; `none` stands for an empty list."""
    lines = [f"Board size: {len(rows)} rows, {len(rows[0])} columns"]
    for name, symbol in _LISTED.items():
        places = [
            f"({row}, {column})"
            for row, line in enumerate(rows)
            for column, drawn in enumerate(line)
            if drawn == symbol
        ]
        lines.append(f"{name}: {', '.join(places) or 'none'}")
    return "\n".join(lines)
