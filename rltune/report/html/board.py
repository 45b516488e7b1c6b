"""Boards of the grid games as small drawings; any other observation stays text."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum

from rltune.report.html.markup import Html, el
from rltune_envs.frozen_lake import rules as lake
from rltune_envs.sokoban.text import SYMBOLS

CELL = 20
"""Side of a cell in the units of the drawing."""


class Tile(StrEnum):
    """What a cell shows; the value is how it is called."""

    WALL = "wall"
    FLOOR = "floor"
    TARGET = "target"
    BOX_ON_TARGET = "box on target"
    BOX = "box"
    PLAYER = "player"
    PLAYER_ON_TARGET = "player on target"
    ICE = "ice"
    HOLE = "hole"
    GOAL = "goal"
    PLAYER_IN_HOLE = "player in hole"
    PLAYER_ON_GOAL = "player on goal"


_SOKOBAN = (
    Tile.WALL, Tile.FLOOR, Tile.TARGET, Tile.BOX_ON_TARGET, Tile.BOX, Tile.PLAYER,
    Tile.PLAYER_ON_TARGET,
)  # fmt: skip  # in the order of rltune_envs.sokoban.text.SYMBOLS
_LAKE = {
    lake.FROZEN: Tile.ICE, lake.HOLE: Tile.HOLE, lake.GOAL: Tile.GOAL, lake.PLAYER: Tile.PLAYER,
    lake.PLAYER_IN_HOLE: Tile.PLAYER_IN_HOLE, lake.PLAYER_ON_GOAL: Tile.PLAYER_ON_GOAL,
}  # fmt: skip
_EMPTY = frozenset({Tile.FLOOR, Tile.ICE})
_QUIET = _EMPTY | {Tile.WALL}

Board = tuple[tuple[Tile, ...], ...]


def board_of(observation: str, env: Mapping[str, object]) -> Board | None:
    """Return the board in an observation; None where there is none, or of unknown width.

    Args:
        observation: What the policy read. A compact prompt is the cells of a square in one line.
        env: The env section of its trial.

    """
    tiles = _tiles(env)
    lines = observation.strip("\n").split("\n")
    if len(lines) == 1:
        side = math.isqrt(len(lines[0]))
        lines = [lines[0][i : i + side] for i in range(0, side * side, side)] if (
            side > 1 and side * side == len(lines[0])
        ) else []  # fmt: skip
    rows = _rows(lines, tiles)
    return tuple(tuple(tiles[symbol] for symbol in row) for row in rows) if rows else None


def _tiles(env: Mapping[str, object]) -> Mapping[str, Tile]:
    if env.get("kind") == "sokoban":
        symbols = SYMBOLS.get(str(env.get("symbols", "standard")), "")
        return dict(zip(symbols, _SOKOBAN, strict=False))
    return _LAKE if env.get("kind") == "frozen_lake" else {}


def _rows(lines: list[str], tiles: Mapping[str, Tile]) -> list[str]:
    """Return the first run of lines that are cells, all of one length."""
    run: list[str] = []
    for line in lines:
        is_cells = len(line) > 1 and all(symbol in tiles for symbol in line)
        if is_cells and (not run or len(line) == len(run[0])):
            run.append(line)
        elif len(run) > 1:
            break
        else:
            run = [line] if is_cells else []
    return run if len(run) > 1 else []


def draw_board(board: Board, *, label: str) -> Html:
    """Return a board as a drawing that says in words where things are.

    Args:
        board: Its cells.
        label: Which board it is.

    """
    width, height = len(board[0]) * CELL, len(board) * CELL
    cells = [
        el("use", href=f"#tile-{_name(tile)}", x=column * CELL, y=row * CELL)
        for row, tiles in enumerate(board)
        for column, tile in enumerate(tiles)
        if tile not in _EMPTY
    ]
    ground = "ice" if any(Tile.ICE in tiles for tiles in board) else "ground"
    return el(
        "svg",
        el("rect", class_=ground, width=width, height=height),
        el("path", class_="lines", d=_lines(len(board), len(board[0]))),
        *cells,
        class_="board",
        role="img",
        aria_label=f"{label}. {in_words(board)}",
        viewBox=f"-1 -1 {width + 2} {height + 2}",
    )


def _lines(rows: int, columns: int) -> str:
    across = "".join(f"M0 {i * CELL}h{columns * CELL}" for i in range(rows + 1))
    return across + "".join(f"M{i * CELL} 0v{rows * CELL}" for i in range(columns + 1))


def in_words(board: Board) -> str:
    """Return where everything but floor and wall is, rows and columns counted from 1."""
    places: dict[Tile, list[str]] = {}
    for row, tiles in enumerate(board, start=1):
        for column, tile in enumerate(tiles, start=1):
            if tile not in _QUIET:
                places.setdefault(tile, []).append(f"row {row} column {column}")
    said = "; ".join(
        f"{tile.value} at {', '.join(places[tile])}" for tile in Tile if tile in places
    )
    return f"{len(board)} rows, {len(board[0])} columns: {said or 'nothing on it'}."


def _name(tile: Tile) -> str:
    return tile.value.replace(" ", "-")


def tile_symbols() -> Html:
    """Return the drawings of the tiles, which boards refer to; once a page."""
    return el(
        "svg",
        el("defs", *(el("symbol", *parts, id=f"tile-{_name(tile)}", viewBox=f"0 0 {CELL} {CELL}",
                        width=CELL, height=CELL) for tile, parts in _drawings().items())),
        class_="hidden",
        aria_hidden="true",
        width=0,
        height=0,
    )  # fmt: skip


def tile_key(tiles: Iterable[Tile]) -> Html:
    """Return what the tiles mean, for readers."""
    shown, parts = tuple(tiles), []
    name = "ice" if Tile.ICE in shown else "ground"
    for tile in shown:
        ground = el("rect", class_=name, width=CELL, height=CELL)
        drawn = None if tile in _EMPTY else el("use", href=f"#tile-{_name(tile)}")
        picture = el(
            "svg", ground, drawn, class_="tile", viewBox=f"0 0 {CELL} {CELL}", aria_hidden="true"
        )
        parts.append(el("li", picture, f" {tile.value}"))
    return el("ul", *parts, class_="tiles", aria_label="What the tiles mean")


def tiles_of(env: Mapping[str, object]) -> tuple[Tile, ...]:
    """Return the tiles of a game; none of one without a board."""
    return tuple(_tiles(env).values())


def _drawings() -> dict[Tile, tuple[Html, ...]]:
    target = el("circle", cx=10, cy=10, r=4.5, class_="target")
    box = el("rect", x=3, y=3, width=14, height=14, rx=1.5, class_="box")
    planks = el("path", d="M3 7.5h14M3 12.5h14", class_="plank")
    done = el("rect", x=3, y=3, width=14, height=14, rx=1.5, class_="box done")
    tick = el("path", d="M6 10.5l3 3 5.5-6.5", class_="tick")
    player = (
        el("circle", cx=10, cy=7, r=3.4, class_="player"),
        el("path", d="M4 17a6 6 0 0 1 12 0z", class_="player"),
    )
    hole = el("circle", cx=10, cy=10, r=7.5, class_="hole")
    flag = (
        el("path", d="M6 3v14", class_="pole"),
        el("path", d="M6.7 3.5h8.3l-2.4 3 2.4 3H6.7z", class_="flag"),
    )
    ring = el("circle", cx=10, cy=10, r=8.6, class_="target")
    return {
        Tile.WALL: (el("rect", width=CELL, height=CELL, class_="wall"),),
        Tile.TARGET: (target,),
        Tile.BOX: (box, planks),
        Tile.BOX_ON_TARGET: (done, tick),
        Tile.PLAYER: player,
        Tile.PLAYER_ON_TARGET: (ring, *player),
        Tile.HOLE: (hole,),
        Tile.GOAL: flag,
        Tile.PLAYER_IN_HOLE: (hole, el("path", d="M6 6l8 8M14 6l-8 8", class_="cross")),
        Tile.PLAYER_ON_GOAL: (*flag, el("circle", cx=13, cy=14, r=3, class_="player")),
    }
