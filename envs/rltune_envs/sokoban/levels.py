"""Level files in XSB, the format of Microban and Boxoban: rows of `# @$.*+` between comments.

A row starts, after blanks, with a level symbol; `-` and `_` are other spellings of the blank. Any
other line (`; 1`, `Title: ...`) is a comment and ends a level, and so does a blank line.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rltune_envs.errors import LevelError
from rltune_envs.sokoban.deadlock import reachable_cells
from rltune_envs.sokoban.rules import WALL, Level, inner_cells, parse_level

_SYMBOLS = "#@+$*.-_ "
_NAMED = "# @ + $ * . - _ and blank"
_DRAWN = str.maketrans(_SYMBOLS, "#PSX√O___")


@dataclass(frozen=True, slots=True)
class LevelRow:
    """One level of a file.

    Attributes:
        level: Room and start.
        source: Name of the file.
        number: Place in the file, from 1.
        line: Line of its first row, from 1.

    """

    level: Level
    source: str
    number: int
    line: int


@dataclass(frozen=True, slots=True)
class LevelFile:
    """All levels of a file, in a fixed order that mixes easy and hard ones.

    Attributes:
        rows: The levels, in the order of the file.
        order: Index of a row for each seed modulo the number of rows.

    """

    rows: tuple[LevelRow, ...]
    order: tuple[int, ...]

    def row(self, seed: int) -> LevelRow:
        """Return the level of a seed; `n` consecutive seeds visit each of `n` rows once."""
        return self.rows[self.order[seed % len(self.order)]]


@lru_cache(maxsize=32)
def load_levels(path: str) -> LevelFile:
    """Read a level file; it is kept in memory.

    Cells outside the wall, and rooms that the player cannot enter, become wall; so does a box on a
    target there.

    Raises:
        LevelError: The file cannot be read, holds no level, or one of its levels is bad; the
            message names file and line.

    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelError(f"{path}: cannot be read as a level file: {error}") from error
    blocks = _blocks(text)
    if not blocks:
        raise LevelError(f"{path}: holds no level; its rows are made of {_NAMED}")
    rows = []
    for number, (line, drawing) in enumerate(blocks, start=1):
        try:
            level = _level(drawing)
        except LevelError as error:
            raise LevelError(f"{path}:{line}: level {number}: {error}") from error
        rows.append(LevelRow(level, Path(path).name, number, line))
    return LevelFile(tuple(rows), _order(len(rows)))


def _order(n: int) -> tuple[int, ...]:
    """Return a permutation that depends on `n` alone."""
    keys = [hashlib.sha256(f"sokoban/levels/{n}/{i}".encode()).digest() for i in range(n)]
    return tuple(sorted(range(n), key=keys.__getitem__))


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    """Return the runs of level rows, each with the number of its first line."""
    blocks: list[tuple[int, list[str]]] = []
    is_inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        row = line.rstrip()
        is_row = bool(row) and row.lstrip(" ")[0] in _SYMBOLS
        if is_row and is_inside:
            blocks[-1][1].append(row)
        elif is_row:
            blocks.append((number, [row]))
        is_inside = is_row
    return blocks


def _level(drawing: Sequence[str]) -> Level:
    """Read one drawing; what the player cannot reach becomes wall."""
    if strange := sorted(set("".join(drawing)) - set(_SYMBOLS)):
        raise LevelError(f"{strange[0]!r} is not a level symbol; allowed: {_NAMED}")
    width = max(map(len, drawing))
    rows = [row.ljust(width).translate(_DRAWN) for row in drawing]
    edge = WALL * (width + 2)
    padded = parse_level([edge, *(f"{WALL}{row}{WALL}" for row in rows), edge])
    room = reachable_cells(padded)
    if room & ~_inner_twice(padded):
        raise LevelError("the player can leave the room; close the wall around it")
    if (padded.start.boxes ^ padded.targets) & ~room:
        raise LevelError("a box or target is out of the player's reach, so it has no solution")
    filled = [
        "".join(
            symbol if room >> (r * (width + 2) + c) & 1 else WALL
            for c, symbol in enumerate(row, start=1)
        )
        for r, row in enumerate(rows, start=1)
    ]
    level = parse_level(filled)
    if level.is_solved(level.start):
        raise LevelError("it is solved from the start")
    return level


def _inner_twice(level: Level) -> int:
    """Return the cells that are neither on the border nor next to it."""
    inner, width = inner_cells(level.height, level.width), level.width
    return inner & inner << 1 & inner >> 1 & inner << width & inner >> width
