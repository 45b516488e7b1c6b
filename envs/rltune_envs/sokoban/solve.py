"""Exact answers about a level: shortest solutions, and what random play achieves.

Lengths count actions (player moves), pushes included.
"""

from collections.abc import Sequence

from rltune_envs.errors import SearchLimitError
from rltune_envs.sokoban.astar import Guide, shortest_by_pushes
from rltune_envs.sokoban.bfs import shortest_by_steps
from rltune_envs.sokoban.deadlock import is_deadlocked
from rltune_envs.sokoban.rules import Level

_SMALL_AREA = 64  # cells, walls included; with one or two boxes breadth-first search is faster


def shortest_solution(
    level: Level, *, max_moves: int | None = None, max_nodes: int = 200_000
) -> tuple[int, ...] | None:
    """Return the actions of one shortest solution, or None when there is none.

    The level alone decides the result; its size decides which search is used.

    Args:
        level: Room and start.
        max_moves: Look no further than this many actions; None looks everywhere.
        max_nodes: Give up after this many positions. Small rooms never come near it.

    Raises:
        SearchLimitError: The answer takes more than `max_nodes` positions.

    """
    if level.is_solved(level.start):
        return ()
    if is_deadlocked(level, level.start):
        return None
    if level.height * level.width <= _SMALL_AREA and level.targets.bit_count() <= 2:
        return shortest_by_steps(level, max_moves=max_moves, max_nodes=max_nodes)
    return shortest_by_pushes(level, max_moves=max_moves, max_nodes=max_nodes)


def count_pushes(level: Level, solution: Sequence[int]) -> int:
    """Return how many of the actions move a box."""
    state, pushes = level.start, 0
    for action in solution:
        following = level.step(state, action)
        pushes += following.boxes != state.boxes
        state = following
    return pushes


def random_success_probability(
    level: Level, *, max_actions: int, max_states: int = 5_000_000
) -> float:
    """Return the exact probability that uniform random actions solve the level in `max_actions`.

    The distribution over positions is advanced one action at a time; solved positions absorb, and
    those that need more than the remaining actions are dropped.

    Args:
        level: Room and start.
        max_actions: Actions of the random player.
        max_states: Give up after this many positions, counted once per action.

    Raises:
        SearchLimitError: More than `max_states` positions have a share of the probability.

    """
    guide = Guide.of(level)
    mass = {(level.start.player, level.start.boxes): 1.0}
    solved, n_states = 0.0, 0
    for left in reversed(range(max_actions)):
        spread: dict[tuple[int, int], float] = {}
        for node, probability in mass.items():
            for following in _neighbours(level, *node):
                if following in spread:
                    spread[following] += probability / 4
                elif following[1] == level.targets:
                    solved += probability / 4
                elif guide.estimate(following) <= left:
                    spread[following] = probability / 4
        mass = spread
        n_states += len(mass)
        if n_states > max_states:
            raise SearchLimitError(
                f"the exact success of random play takes more than {max_states} positions; "
                "allow fewer actions or use smaller levels"
            )
    return solved


def _neighbours(level: Level, player: int, boxes: int) -> list[tuple[int, int]]:
    """Return the position after each of the four actions, as plain numbers."""
    following = []
    for delta in level.deltas:
        cell = player + delta
        after = (player, boxes)
        if not level.walls >> cell & 1:
            if not boxes >> cell & 1:
                after = (cell, boxes)
            elif not (level.walls | boxes) >> (cell + delta) & 1:
                after = (cell, boxes ^ (1 << cell) ^ (1 << cell + delta))
        following.append(after)
    return following
