"""Sokoban's rules on bit boards. No randomness, no text beyond the level format.

A cell is an index `row * width + column`; a set of cells is an int with bit `cell` set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rltune_envs.errors import LevelError
from rltune_envs.pictures import hash_of_pictures

ACTIONS = ("Up", "Down", "Left", "Right")

WALL, FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET = "#_OX√PS"
_NOWHERE = -1  # of a player that is not drawn


@dataclass(frozen=True, slots=True)
class State:
    """Positions of the player and the boxes."""

    player: int
    boxes: int


@dataclass(frozen=True, slots=True)
class Level:
    """A room and its start.

    Attributes:
        height: Rows, walls included.
        width: Columns, walls included.
        walls: Wall cells; they enclose the room.
        targets: Target cells, as many as there are boxes.
        start: Player and boxes before the first action.

    """

    height: int
    width: int
    walls: int
    targets: int
    start: State

    @property
    def deltas(self) -> tuple[int, int, int, int]:
        """Index differences of the four actions, in the order of `ACTIONS`."""
        return (-self.width, self.width, -1, 1)

    def is_solved(self, state: State) -> bool:
        """Whether every box is on a target."""
        return state.boxes == self.targets

    def step(self, state: State, action: int) -> State:
        """Return the state after one action; an action that is blocked changes nothing.

        Args:
            state: The state before.
            action: Index into `ACTIONS`.

        """
        delta = self.deltas[action]
        cell = state.player + delta
        if self.walls >> cell & 1:
            return state
        if not state.boxes >> cell & 1:
            return State(cell, state.boxes)
        behind = cell + delta
        if (self.walls | state.boxes) >> behind & 1:
            return state
        return State(cell, state.boxes ^ (1 << cell) ^ (1 << behind))


@cache
def inner_cells(height: int, width: int) -> int:
    """Return every cell that is not on the border."""
    row = ((1 << max(0, width - 2)) - 1) << 1
    return sum(row << (r * width) for r in range(1, height - 1))


def parse_level(rows: Sequence[str]) -> Level:
    """Read a level drawn with the symbols of `render`.

    Raises:
        LevelError: The rows are ragged, the room is open, there is not exactly one player, or the
            numbers of boxes and targets differ or are zero.

    """
    height, width = len(rows), len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise LevelError(f"rows have lengths {[len(row) for row in rows]}; all must be equal")
    cells: dict[str, int] = dict.fromkeys((WALL, TARGET, BOX, PLAYER), 0)
    parts = {
        WALL: WALL, FLOOR: "", TARGET: TARGET, BOX: BOX, BOX_ON_TARGET: BOX + TARGET,
        PLAYER: PLAYER, PLAYER_ON_TARGET: PLAYER + TARGET,
    }  # fmt: skip
    for index, symbol in enumerate("".join(rows)):
        if symbol not in parts:
            raise LevelError(f"{symbol!r} is not a level symbol; allowed: {' '.join(parts)}")
        for part in parts[symbol]:
            cells[part] |= 1 << index
    border = (1 << (height * width)) - 1 - inner_cells(height, width)
    if cells[WALL] & border != border:
        raise LevelError(
            "the outermost cells must all be walls, so that nothing can leave the room"
        )
    if cells[PLAYER].bit_count() != 1:
        raise LevelError(f"{cells[PLAYER].bit_count()} players; exactly one is needed")
    if cells[BOX].bit_count() != cells[TARGET].bit_count() or not cells[BOX]:
        raise LevelError(
            f"{cells[BOX].bit_count()} boxes and {cells[TARGET].bit_count()} targets; "
            "at least one of each and equal numbers are needed"
        )
    start = State(cells[PLAYER].bit_length() - 1, cells[BOX])
    return Level(height, width, cells[WALL], cells[TARGET], start)


def render(level: Level, state: State) -> tuple[str, ...]:
    """Draw one row of symbols per grid row: `#` wall, `_` floor, `O` target, `X` box, `P` player.

    `√` is a box on a target and `S` the player on a target.
    """
    symbols = []
    for cell in range(level.height * level.width):
        on_target = level.targets >> cell & 1
        if level.walls >> cell & 1:
            symbols.append(WALL)
        elif cell == state.player:
            symbols.append(PLAYER_ON_TARGET if on_target else PLAYER)
        elif state.boxes >> cell & 1:
            symbols.append(BOX_ON_TARGET if on_target else BOX)
        else:
            symbols.append(TARGET if on_target else FLOOR)
    text = "".join(symbols)
    return tuple(text[i : i + level.width] for i in range(0, len(text), level.width))


def canonical_hash(level: Level) -> str:
    """Return the sha256 of the start position, equal for all eight symmetric pictures of it."""
    return hash_of_pictures(render(level, level.start))


def room_hash(level: Level) -> str:
    """Return `canonical_hash` without the player: equal for all starts in the same room."""
    return hash_of_pictures(render(level, State(_NOWHERE, level.start.boxes)))
