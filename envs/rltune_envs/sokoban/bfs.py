"""Shortest solutions by breadth-first search, the fastest method in small rooms."""

from rltune_envs.errors import SearchLimitError
from rltune_envs.sokoban.deadlock import live_cells
from rltune_envs.sokoban.rules import Level

_Node = tuple[int, int]  # player cell, box cells: plain numbers, because the search is the hot path


def shortest_by_steps(
    level: Level, *, max_moves: int | None = None, max_nodes: int = 2_000_000
) -> tuple[int, ...] | None:
    """Return the actions of one shortest solution, or None when there is none.

    Breadth-first over (player, boxes), without boxes on cells from which no target can be reached.
    Ties go to the earlier action in the order Up, Down, Left, Right, so the level alone decides the
    result.

    Args:
        level: Room and start.
        max_moves: Look no further than this many actions; None looks everywhere.
        max_nodes: Give up after this many positions.

    Raises:
        SearchLimitError: More than `max_nodes` positions were reached.

    """
    if level.is_solved(level.start):
        return ()
    alive, deltas = live_cells(level), level.deltas
    start = (level.start.player, level.start.boxes)
    came_from: dict[_Node, tuple[_Node, int]] = {start: (start, -1)}
    frontier = [start]
    depth = 0
    while frontier and depth != max_moves:
        depth += 1
        reached: list[_Node] = []
        for node in frontier:
            for action, following in _moves(deltas, level.walls, alive, node):
                if following in came_from:
                    continue
                came_from[following] = (node, action)
                if following[1] == level.targets:
                    return _path(came_from, following)
                reached.append(following)
        if len(came_from) > max_nodes:
            raise SearchLimitError(
                f"no answer within {max_nodes} positions; raise max_nodes or use a smaller level"
            )
        frontier = reached
    return None


def _moves(deltas: tuple[int, ...], walls: int, alive: int, node: _Node) -> list[tuple[int, _Node]]:
    """Return each action that changes the state and keeps every box on a live cell."""
    player, boxes = node
    moves: list[tuple[int, _Node]] = []
    for action, delta in enumerate(deltas):
        cell = player + delta
        if walls >> cell & 1:
            continue
        if not boxes >> cell & 1:
            moves.append((action, (cell, boxes)))
            continue
        behind = cell + delta
        # Every live cell is free of walls.
        if alive >> behind & 1 and not boxes >> behind & 1:
            moves.append((action, (cell, boxes ^ (1 << cell) ^ (1 << behind))))
    return moves


def _path(came_from: dict[_Node, tuple[_Node, int]], node: _Node) -> tuple[int, ...]:
    actions: list[int] = []
    while True:
        node, action = came_from[node]
        if action < 0:
            return tuple(reversed(actions))
        actions.append(action)
