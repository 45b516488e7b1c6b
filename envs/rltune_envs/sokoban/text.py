"""Texts for the policy: instructions, boards and coordinates. No rules and no state."""

from rltune_envs.grid_text import actions_text, legend_text
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


def instruction(*, observation: str, symbols: str, limit: int) -> str:
    """Return the rules in words, with what is needed to read the observation.

    Args:
        observation: One of `grid_text.OBSERVATIONS`.
        symbols: A name in `SYMBOLS`.
        limit: Actions of one turn.

    """
    text = _TASK
    if observation != "grid":
        text += _COORDINATES
    if observation != "coord":
        pairs = zip(SYMBOLS[symbols], _MEANINGS.values(), strict=True)
        legend = ", ".join(f"{symbol}: {meaning}" for symbol, meaning in pairs)
        text += legend_text(legend)
    return text + actions_text(ACTIONS, limit=limit)


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


def _coordinates(rows: tuple[str, ...]) -> str:
    """List where things are; `none` stands for an empty list."""
    lines = [f"Board size: {len(rows)} rows, {len(rows[0])} columns"]
    for name, symbol in _LISTED.items():
        cells = [
            f"({row}, {column})"
            for row, line in enumerate(rows)
            for column, drawn in enumerate(line)
            if drawn == symbol
        ]
        lines.append(f"{name}: {', '.join(cells) or 'none'}")
    return "\n".join(lines)
