"""Shortest solutions of levels that are too large for breadth-first search: A* over pushes.

A node is a position after a push; an edge is a walk to a box and one push, and costs its moves. So
lengths count all actions, as everywhere in this package, but the many positions of the player
between two pushes are never stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rltune_envs.errors import SearchLimitError
from rltune_envs.sokoban.deadlock import frozen_boxes, live_cells
from rltune_envs.sokoban.rules import Level

_NEVER = 1 << 20  # "no way" in tables; longer than any solution
_Node = tuple[int, int]  # player cell, box cells


def shortest_by_pushes(
    level: Level, *, max_moves: int | None = None, max_nodes: int = 200_000
) -> tuple[int, ...] | None:
    """Return the actions of one shortest solution, or None when there is none.

    Args:
        level: Room and start.
        max_moves: Look no further than this many actions; None looks everywhere.
        max_nodes: Give up after expanding this many positions.

    Raises:
        SearchLimitError: More than `max_nodes` positions were expanded.

    """
    guide = Guide.of(level)
    start = (level.start.player, level.start.boxes)
    length, came_from = {start: 0}, {start: (start, 0)}
    opened = _Buckets()
    opened.add(guide.estimate(start), start)
    limit = _NEVER - 1 if max_moves is None else max_moves
    n_expanded = 0
    while (entry := opened.pop(limit)) is not None:
        estimate, node = entry
        so_far = length[node]
        if so_far + guide.estimate(node) < estimate:
            continue  # a shorter way here has been expanded since
        if node[1] == level.targets:
            return _actions(level, came_from, node)
        n_expanded += 1
        if n_expanded > max_nodes:
            raise SearchLimitError(
                f"no answer within {max_nodes} positions; raise max_nodes or use a smaller level"
            )
        for moves, action, following in _pushes(guide, node):
            total = so_far + moves
            if total < length.get(following, _NEVER):
                length[following] = total
                came_from[following] = (node, action)
                opened.add(total + guide.estimate(following), following)
    return None


class _Buckets:
    """A queue of nodes by estimated length; among equals the newest comes first."""

    def __init__(self) -> None:
        self._nodes: dict[int, list[_Node]] = {}
        self._lowest = _NEVER

    def add(self, estimate: int, node: _Node) -> None:
        if estimate >= _NEVER:
            return
        self._nodes.setdefault(estimate, []).append(node)
        self._lowest = min(self._lowest, estimate)

    def pop(self, limit: int) -> tuple[int, _Node] | None:
        """Return a node of lowest estimate with it; None when all are above `limit`."""
        while self._nodes and self._lowest <= limit:
            if nodes := self._nodes.get(self._lowest):
                return self._lowest, nodes.pop()
            self._nodes.pop(self._lowest, None)
            self._lowest = min(self._nodes, default=_NEVER)
        return None


@dataclass(slots=True)
class Guide:
    """The level, and lower bounds on the remaining moves."""

    level: Level
    alive: int
    home: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"  # [cell, target]: pushes of a lone box
    alone: dict[int, list[int]]  # [cell][player]: moves that bring a lone box to any target
    _known: dict[int, tuple[int, list[list[int]]]] = field(default_factory=dict)

    @staticmethod
    def of(level: Level) -> "Guide":
        """Return the guide of a level."""
        return Guide(level, live_cells(level), _home_distances(level), _lone_lengths(level))

    def estimate(self, node: _Node) -> int:
        """Return a lower bound on the moves of a solution from `node`; `_NEVER` if lost.

        The larger of two bounds: the pushes of all boxes under the best assignment to targets, and
        the moves (walks included) that the worst single box needs in the empty room.
        """
        player, boxes = node
        known = self._known.get(boxes)
        if known is None:
            known = self._known[boxes] = self._of_boxes(boxes)
        bound, tables = known
        for table in tables:
            if table[player] > bound:
                bound = table[player]
        return bound

    def _of_boxes(self, boxes: int) -> tuple[int, list[list[int]]]:
        level = self.level
        if boxes & ~self.alive:
            return _NEVER, []
        if frozen_boxes(level.walls, self.alive, level.width, boxes) & ~level.targets:
            return _NEVER, []
        from scipy.optimize import linear_sum_assignment  # whoever only plays does without scipy

        cells = _cells(boxes)
        costs = self.home[cells]
        pushes = int(costs[linear_sum_assignment(costs)].sum())
        return min(pushes, _NEVER), [self.alone[cell] for cell in cells]


def _pushes(guide: Guide, node: _Node) -> Iterator[tuple[int, int, _Node]]:
    """Yield every push that can come next: its moves, its action, and the position after it."""
    player, boxes = node
    level, width = guide.level, guide.level.width
    free = ~(level.walls | boxes)
    land = guide.alive & ~boxes
    stands = (  # where the player pushes from, one set per action
        (boxes >> width & land) << 2 * width & free,
        (boxes << width & land) >> 2 * width & free,
        (boxes >> 1 & land) << 2 & free,
        (boxes << 1 & land) >> 2 & free,
    )
    wanted = stands[0] | stands[1] | stands[2] | stands[3]
    reached = frontier = 1 << player
    moves = 1
    while wanted and frontier:
        if here := frontier & wanted:
            wanted ^= here
            for action, delta in enumerate(level.deltas):
                for cell in _cells(here & stands[action]):
                    box = cell + delta
                    yield moves, action, (box, boxes ^ (1 << box) ^ (1 << box + delta))
        spread = frontier << 1 | frontier >> 1 | frontier << width | frontier >> width
        frontier = spread & free & ~reached
        reached |= frontier
        moves += 1


def _cells(bits: int) -> list[int]:
    cells = []
    while bits:
        lowest = bits & -bits
        cells.append(lowest.bit_length() - 1)
        bits ^= lowest
    return cells


def _home_distances(level: Level) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Return the pushes of a lone box from each cell to each target, wherever the player stands."""
    targets = _cells(level.targets)
    table = np.full((level.height * level.width, len(targets)), _NEVER, dtype=np.int64)
    for column, target in enumerate(targets):
        distance = {target: 0}
        for cell in (queue := [target]):
            for delta in level.deltas:
                box, player = cell - delta, cell - 2 * delta
                if box in distance or level.walls >> box & 1 or level.walls >> player & 1:
                    continue
                distance[box] = distance[cell] + 1
                queue.append(box)
        table[list(distance), column] = list(distance.values())
    return table


def _lone_lengths(level: Level) -> dict[int, list[int]]:
    """Return the moves that bring a lone box to a target, by its cell and the player's."""
    n_cells = level.height * level.width
    free = [not level.walls >> cell & 1 for cell in range(n_cells)]
    lengths = {cell: [_NEVER] * n_cells for cell in range(n_cells) if free[cell]}
    queue = []
    for target in _cells(level.targets):
        for player in lengths:
            if player != target:
                lengths[target][player] = 0
                queue.append((target, player))
    for box, player in queue:
        length = lengths[box][player] + 1
        for delta in level.deltas:
            before = player - delta
            if not free[before] or before == box:
                continue
            earlier = [box] if player + delta != box else [box, player]
            for cell in earlier:
                if lengths[cell][before] > length:
                    lengths[cell][before] = length
                    queue.append((cell, before))
    return lengths


def _actions(
    level: Level, came_from: dict[_Node, tuple[_Node, int]], node: _Node
) -> tuple[int, ...]:
    """Write out the walks between the pushes that lead to `node`."""
    actions: list[int] = []  # backwards
    while (step := came_from[node])[0] != node:
        before, action = step
        box = node[0]
        actions.append(action)
        actions += reversed(_walk(level, before, box - level.deltas[action]))
        node = before
    return tuple(reversed(actions))


def _walk(level: Level, node: _Node, goal: int) -> list[int]:
    """Return the actions of a shortest walk of the player to `goal`, no box moved."""
    player, boxes = node
    blocked = level.walls | boxes
    ways: dict[int, list[int]] = {player: []}
    for cell in (queue := [player]):
        if cell == goal:
            break
        for action, delta in enumerate(level.deltas):
            following = cell + delta
            if following not in ways and not blocked >> following & 1:
                ways[following] = [*ways[cell], action]
                queue.append(following)
    return ways[goal]
