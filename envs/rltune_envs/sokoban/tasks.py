"""From a seed to a certified level, generated or from a file, with the facts about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rltune_envs.errors import GenerationError, SearchLimitError
from rltune_envs.sokoban.deadlock import dead_cells
from rltune_envs.sokoban.generate import MAX_NODES, CertifiedLevel, generate
from rltune_envs.sokoban.levels import LevelRow, load_levels
from rltune_envs.sokoban.rules import Level, canonical_hash, room_hash
from rltune_envs.sokoban.solve import count_pushes, shortest_solution


@dataclass(frozen=True, slots=True)
class LevelTask:
    """A level with its certificate.

    Attributes:
        level: Room and start.
        solution: One shortest solution, as indices into `rules.ACTIONS`; never empty.
        content_hash: `rules.canonical_hash` of the level.
        near_hash: `rules.room_hash` of the level.
        facts: Boxes, pushes of the solution, cells where a box is lost, and the place in a file.

    """

    level: Level
    solution: tuple[int, ...]
    content_hash: str
    near_hash: str
    facts: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class TaskSource:
    """The source of an environment's levels; the arguments are those of `SokobanEnv`.

    `max_difficulty` is a number here.
    """

    size: int
    boxes: int
    search_depth: int
    min_difficulty: int
    max_difficulty: int
    levels: str | None

    def get(self, seed: int) -> LevelTask:
        """Return the level of a seed.

        A row of a file that is outside the band of difficulty, or that cannot be certified, is
        skipped: its seeds play the next usable row.

        Raises:
            GenerationError: No level has the requested properties.
            LevelError: The file is bad.

        """
        return _from_file(self, seed) if self.levels is not None else _generated(self, seed)


@lru_cache(maxsize=65536)
def _generated(source: TaskSource, seed: int) -> LevelTask:
    """Cached: the members of a group, and all gates, play the same levels."""
    return _describe(
        generate(
            seed,
            height=source.size,
            width=source.size,
            boxes=source.boxes,
            search_depth=source.search_depth,
            min_moves=source.min_difficulty,
            max_moves=source.max_difficulty,
        )
    )


def _from_file(source: TaskSource, seed: int) -> LevelTask:
    file = load_levels(str(source.levels))
    for place in range(seed, seed + len(file.rows)):
        task = _certified(file.row(place), source.max_difficulty)
        if task is not None and len(task.solution) >= source.min_difficulty:
            return task
    raise GenerationError(
        f"{source.levels}: none of its {len(file.rows)} levels has a proven shortest solution of "
        f"{source.min_difficulty} to {source.max_difficulty} actions; widen the band, or raise "
        "max_actions and max_turns"
    )


@lru_cache(maxsize=65536)
def _certified(row: LevelRow, max_moves: int) -> LevelTask | None:
    """Return the level with its certificate; None if too long, or too hard to prove."""
    try:
        solution = shortest_solution(row.level, max_moves=max_moves, max_nodes=MAX_NODES)
    except SearchLimitError:
        return None
    if solution is None:
        return None
    certified = CertifiedLevel(row.level, solution, canonical_hash(row.level))
    return _describe(certified, {"source": row.source, "number": row.number})


def _describe(
    certified: CertifiedLevel, place: Mapping[str, str | int | float | bool] | None = None
) -> LevelTask:
    level = certified.level
    facts = {
        "boxes": level.targets.bit_count(),
        "pushes": count_pushes(level, certified.solution),
        "dead_cells": dead_cells(level).bit_count(),
    }
    return LevelTask(
        level=level,
        solution=certified.solution,
        content_hash=certified.content_hash,
        near_hash=room_hash(level),
        facts={**facts, **(place or {})},
    )
