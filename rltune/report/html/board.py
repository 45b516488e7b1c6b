"""Boards of the grid games in what the policy read; any other observation stays text."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

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

    @property
    def is_empty(self) -> bool:
        """Whether nothing is drawn on the ground."""
        return self in (Tile.FLOOR, Tile.ICE)

    @property
    def symbol(self) -> str:
        """Its name in templates/tiles.html."""
        return self.value.replace(" ", "-")


_SOKOBAN = (
    Tile.WALL, Tile.FLOOR, Tile.TARGET, Tile.BOX_ON_TARGET, Tile.BOX, Tile.PLAYER,
    Tile.PLAYER_ON_TARGET,
)  # fmt: skip  # in the order of rltune_envs.sokoban.text.SYMBOLS
_LAKE = {
    lake.FROZEN: Tile.ICE, lake.HOLE: Tile.HOLE, lake.GOAL: Tile.GOAL, lake.PLAYER: Tile.PLAYER,
    lake.PLAYER_IN_HOLE: Tile.PLAYER_IN_HOLE, lake.PLAYER_ON_GOAL: Tile.PLAYER_ON_GOAL,
}  # fmt: skip

Board = tuple[tuple[Tile, ...], ...]


def board_of(observation: str, env: Mapping[str, object]) -> Board | None:
    """Return the board in an observation; None where there is none, or of unknown width.

    A compact prompt is the cells of a square in one line.
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


def draw_board(board: Board, *, label: str) -> dict[str, Any]:
    """Return what the macro `board` draws: its size, its cells, and in words where things are."""
    rows, columns = len(board), len(board[0])
    across = "".join(f"M0 {i * CELL}h{columns * CELL}" for i in range(rows + 1))
    down = "".join(f"M{i * CELL} 0v{rows * CELL}" for i in range(columns + 1))
    return {
        "width": columns * CELL,
        "height": rows * CELL,
        "ground": ground_of(tile for tiles in board for tile in tiles),
        "lines": across + down,
        "cells": [
            (tile.symbol, column * CELL, row * CELL)
            for row, tiles in enumerate(board)
            for column, tile in enumerate(tiles)
            if not tile.is_empty
        ],
        "words": f"{label}. {in_words(board)}",
    }


def in_words(board: Board) -> str:
    """Return where everything but floor and wall is, rows and columns counted from 1."""
    places: dict[Tile, list[str]] = {}
    for row, tiles in enumerate(board, start=1):
        for column, tile in enumerate(tiles, start=1):
            if not tile.is_empty and tile is not Tile.WALL:
                places.setdefault(tile, []).append(f"row {row} column {column}")
    things = "; ".join(
        f"{tile.value} at {', '.join(places[tile])}" for tile in Tile if tile in places
    )
    return f"{len(board)} rows, {len(board[0])} columns: {things or 'nothing on it'}."


def tiles_of(env: Mapping[str, object]) -> tuple[Tile, ...]:
    """Return the tiles of a game; none of one without a board."""
    return tuple(_tiles(env).values())


def ground_of(tiles: Iterable[Tile]) -> str:
    """Return what lies under the tiles of a game, as a class of report.css."""
    return "ice" if Tile.ICE in tiles else "ground"
