"""Shortest solutions: A* against breadth-first search, and both against published lengths.

Microban and Microban II by David W. Skinner.
"""

import csv
import os
import random
from pathlib import Path

import pytest

from rltune_envs.errors import SearchLimitError
from rltune_envs.sokoban.astar import shortest_by_pushes
from rltune_envs.sokoban.bfs import shortest_by_steps
from rltune_envs.sokoban.levels import load_levels
from rltune_envs.sokoban.rules import Level, State
from rltune_envs.sokoban.solve import shortest_solution

SHARED = Path(__file__).parents[3] / "shared" / "data" / "sokoban"
needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="shared/data/sokoban is not beside the repository"
)


def random_room(seed: int) -> Level:
    """Return a 7x7 room with walls at random and one to three boxes; many have no solution."""
    rng = random.Random(seed)
    inner = [7 * row + column for row in range(1, 6) for column in range(1, 6)]
    middle = [7 * row + column for row in range(2, 5) for column in range(2, 5)]
    n_boxes = rng.randint(1, 3)
    boxes, targets = rng.sample(middle, n_boxes), rng.sample(inner, n_boxes)
    player = rng.choice([cell for cell in inner if cell not in boxes])
    free = {player, *boxes, *targets, *rng.sample(inner, rng.randint(16, 25))}
    walls = sum(1 << cell for cell in range(49) if cell not in free)
    start = State(player, sum(1 << cell for cell in boxes))
    return Level(7, 7, walls, sum(1 << cell for cell in targets), start)


def replay(level: Level, solution: tuple[int, ...]) -> bool:
    """Whether the actions solve the level, and not before the last."""
    state = level.start
    for action in solution:
        if level.is_solved(state):
            return False
        state = level.step(state, action)
    return level.is_solved(state)


def test_both_searches_agree():
    n_solved = 0
    for seed in range(120):
        level = random_room(seed)
        by_pushes, by_steps = shortest_by_pushes(level), shortest_by_steps(level)
        assert (by_pushes is None) == (by_steps is None), seed
        if by_pushes is not None and by_steps is not None:
            assert len(by_pushes) == len(by_steps), seed
            assert replay(level, by_pushes), seed
            assert replay(level, by_steps), seed
            bound = len(by_pushes)
            assert shortest_by_pushes(level, max_moves=bound) == by_pushes
            assert bound == 0 or shortest_by_pushes(level, max_moves=bound - 1) is None
            n_solved += 1
    assert 30 < n_solved < 110


def published() -> list[dict[str, str]]:
    """Return the rows of the file of optimal lengths that were proven."""
    with (SHARED / "optimal_solutions.tsv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if row["status"] == "optimal"]


def agreed(rows: list[dict[str, str]], *, max_nodes: int) -> int:
    """Return how many levels were solved within the budget; each must have its published length."""
    n_agreed = 0
    for row in rows:
        first = 1 if row["file"].endswith(".xsb") else 0  # Boxoban counts its levels from 0
        level = load_levels(str(SHARED / row["file"])).rows[int(row["level"]) - first].level
        try:
            solution = shortest_solution(level, max_nodes=max_nodes)
        except SearchLimitError:
            continue
        assert solution is not None, row
        assert replay(level, solution), row
        assert len(solution) == int(row["opt_moves"]) == len(row["lurd_solution"]), row
        n_agreed += 1
    return n_agreed


@needs_shared
def test_published_optimal_lengths_of_a_sample():
    sample = random.Random(0).sample(published(), 60)

    assert agreed(sample, max_nodes=1000) >= 20


@needs_shared
@pytest.mark.skipif(
    "RLTUNE_ALL_LEVELS" not in os.environ, reason="minutes; set RLTUNE_ALL_LEVELS=1"
)
def test_all_published_optimal_lengths():
    rows = published()

    assert len(rows) == 1238
    assert agreed(rows, max_nodes=10_000) >= 1099  # the others take more positions
