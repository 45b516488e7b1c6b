"""Exact answers about a level: shortest solutions, and what random play achieves.

Lengths count actions (player moves), pushes included.
"""

from rltune_envs.errors import SearchLimitError
from rltune_envs.sokoban.rules import Level, State

_Node = tuple[int, int]  # player cell, box cells: plain numbers, because the search is the hot path


def shortest_solution(
    level: Level, *, max_moves: int | None = None, max_states: int = 2_000_000
) -> tuple[int, ...] | None:
    """Return the actions of one shortest solution, or None when there is none.

    Breadth-first over (player, boxes); a box pushed to a cell from which no target can be reached
    ends that branch. Ties go to the earlier action in the order Up, Down, Left, Right, so the
    result is a function of the level alone.

    Args:
        level: Room and start.
        max_moves: Look no further than this many actions; None looks everywhere.
        max_states: Give up after this many states.

    Raises:
        SearchLimitError: More than `max_states` states were reached.

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
        if len(came_from) > max_states:
            raise SearchLimitError(
                f"no answer within {max_states} states; raise max_states or use a smaller level"
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


def live_cells(level: Level) -> int:
    """Return the cells from which a lone box can be pushed to some target.

    The player may stand on any free cell before each push, so the set is never too small: a box
    outside it can not be saved, one inside it perhaps.
    """
    alive = level.targets
    frontier = [cell for cell in range(level.height * level.width) if alive >> cell & 1]
    while frontier:
        cell = frontier.pop()
        for delta in level.deltas:
            # Pulling a box backwards from `cell` needs a free cell for it and one for the player.
            box, player = cell - delta, cell - 2 * delta
            if alive >> box & 1 or level.walls >> box & 1:
                continue
            if level.walls >> player & 1:
                continue
            alive |= 1 << box
            frontier.append(box)
    return alive


def random_success_probability(level: Level, *, max_actions: int) -> float:
    """Return the exact probability that uniform random actions solve the level in `max_actions`.

    The distribution over states is pushed forward one action at a time; solved states absorb.
    """
    mass: dict[State, float] = {level.start: 1.0}
    solved = 0.0
    successors: dict[State, list[State]] = {}
    for _ in range(max_actions):
        spread: dict[State, float] = {}
        for state, probability in mass.items():
            if state not in successors:
                successors[state] = [level.step(state, action) for action in range(4)]
            for following in successors[state]:
                if level.is_solved(following):
                    solved += probability / 4
                else:
                    spread[following] = spread.get(following, 0.0) + probability / 4
        mass = spread
    return solved


def _path(came_from: dict[_Node, tuple[_Node, int]], node: _Node) -> tuple[int, ...]:
    actions: list[int] = []
    while True:
        node, action = came_from[node]
        if action < 0:
            return tuple(reversed(actions))
        actions.append(action)
