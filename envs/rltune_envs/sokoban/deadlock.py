"""Deadlocks that need no search: dead cells and frozen boxes.

A position found here is certainly lost. To find every lost position takes a search
(`solve.shortest_solution`).
"""

from functools import lru_cache

from rltune_envs.sokoban.rules import Level, State


def is_deadlocked(level: Level, state: State) -> bool:
    """Return whether a box off the targets is on a dead cell or frozen.

    True proves that no solution is left. False proves nothing.
    """
    # A box on a dead cell is also frozen: none of its pushes leads to a live cell.
    frozen = frozen_boxes(level.walls, live_cells(level), level.width, state.boxes)
    return bool(frozen & ~level.targets)


@lru_cache(maxsize=4096)
def live_cells(level: Level) -> int:
    """Return the cells from which a lone box can be pushed to some target.

    The player may be on any free cell before each push, so the set is never too small: a box
    outside it is lost, one inside it perhaps not.
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


def dead_cells(level: Level) -> int:
    """Return the cells that the player can reach but where a box is lost."""
    return reachable_cells(level) & ~live_cells(level)


def reachable_cells(level: Level) -> int:
    """Return the cells that the player can reach if boxes are no obstacle."""
    reached = frontier = 1 << level.start.player
    width = level.width
    while frontier:
        spread = frontier << 1 | frontier >> 1 | frontier << width | frontier >> width
        frontier = spread & ~level.walls & ~reached
        reached |= frontier
    return reached


def frozen_boxes(walls: int, alive: int, width: int, boxes: int) -> int:
    """Return the boxes that no sequence of pushes can move without losing one.

    From all boxes, remove those that could move along a row or column if the others stood still:
    both neighbours there are free, and at least one is a live cell. The rest block each other,
    whatever the others do. The smallest such sets are four in a square, or two along a wall.

    Args:
        walls: Wall cells; they enclose the room.
        alive: Cells from which a lone box can be pushed to a target.
        width: Columns of the room.
        boxes: Cells of the boxes.

    """
    frozen = boxes
    while True:
        solid = walls | frozen
        movable = 0
        for delta in (1, width):
            blocked = solid << delta | solid >> delta
            movable |= (alive << delta | alive >> delta) & ~blocked
        rest = frozen & ~movable
        if rest == frozen:
            return frozen
        frozen = rest
