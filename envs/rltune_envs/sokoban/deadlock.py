"""Dead-locks that can be seen without a search: dead cells and frozen boxes.

What is found here is lost for certain. Not every lost position is found: that takes a search
(`solve.shortest_solution`).
"""

from functools import lru_cache

from rltune_envs.sokoban.rules import Level, State


def is_deadlocked(level: Level, state: State) -> bool:
    """Whether a box off the targets can never come to one, as far as cells and freezes tell.

    True is a proof that no solution is left. False proves nothing.
    """
    # A box on a dead cell is frozen too: none of its pushes leads to a live cell.
    frozen = frozen_boxes(level.walls, live_cells(level), level.width, state.boxes)
    return bool(frozen & ~level.targets)


@lru_cache(maxsize=4096)
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


def dead_cells(level: Level) -> int:
    """Return the cells that the player can stand on but where a box is lost."""
    return reachable_cells(level) & ~live_cells(level)


def reachable_cells(level: Level) -> int:
    """Return the cells that are joined to the player's when boxes are no obstacle."""
    reached = frontier = 1 << level.start.player
    width = level.width
    while frontier:
        spread = frontier << 1 | frontier >> 1 | frontier << width | frontier >> width
        frontier = spread & ~level.walls & ~reached
        reached |= frontier
    return reached


def frozen_boxes(walls: int, alive: int, width: int, boxes: int) -> int:
    """Return the boxes that no sequence of pushes can move without losing one.

    Starting from all boxes, those are taken away that could move along a row or column if the rest
    stood still: both neighbours there are free, and at least one of them is a live cell. What is
    left blocks itself, whatever the others do. Four boxes in a square, or two along a wall, are
    the smallest such sets.

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
