"""The rules of FrozenLake, with Gymnasium's semantics, on a bitmask of holes.

Cells are numbered row by row. A step goes where it was aimed with probability `success_rate` and to
each of the two sides with half of the rest; it never goes backwards. A step against the border
stays. A hole and the goal end the episode.
"""

from dataclasses import dataclass

from rltune_envs.pictures import hash_of_pictures

ACTIONS = ("Left", "Down", "Right", "Up")  # in Gymnasium's order: neighbours are perpendicular
_STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
FROZEN, HOLE, GOAL, PLAYER, PLAYER_IN_HOLE, PLAYER_ON_GOAL = "_OGPX√"


@dataclass(frozen=True, slots=True)
class Lake:
    """A square lake.

    Attributes:
        size: Rows, and columns.
        holes: Hole cells, one bit each.
        start: Where the player begins.
        goal: Where it has to go; not the start, and no hole.

    """

    size: int
    holes: int
    start: int
    goal: int

    def is_hole(self, cell: int) -> bool:
        """Whether a cell is a hole."""
        return bool(self.holes >> cell & 1)

    def is_end(self, cell: int) -> bool:
        """Whether an episode ends in a cell."""
        return cell == self.goal or self.is_hole(cell)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A possible result of a step."""

    probability: float
    cell: int
    reward: float
    terminated: bool


def move(size: int, cell: int, action: int) -> int:
    """Return the neighbour of a cell, or the cell itself at the border."""
    row, column = divmod(cell, size)
    down, right = _STEPS[action]
    row, column = row + down, column + right
    return row * size + column if 0 <= row < size and 0 <= column < size else cell


def slip(action: int, *, luck: float, success_rate: float) -> int:
    """Return where a step really goes.

    Args:
        action: Index into `ACTIONS`: where it was aimed.
        luck: Uniform number in [0, 1) that belongs to this step.
        success_rate: Probability that it goes there.

    """
    if luck < success_rate:
        return action
    return (action + (1 if luck < (1 + success_rate) / 2 else -1)) % 4


def transition_table(
    lake: Lake, success_rate: float
) -> tuple[tuple[tuple[Outcome, ...], ...], ...]:
    """Return cell -> action -> outcomes: one side, the aim, the other side.

    From a hole or the goal every action stays, with certainty and without reward.
    """
    sides = (1 - success_rate) / 2
    table: list[tuple[tuple[Outcome, ...], ...]] = []
    for cell in range(lake.size**2):
        if lake.is_end(cell):
            table.append(((Outcome(1.0, cell, 0.0, True),),) * 4)
            continue
        table.append(
            tuple(
                tuple(
                    _outcome(lake, cell, (action + turn) % 4, success_rate if not turn else sides)
                    for turn in (-1, 0, 1)
                )
                for action in range(4)
            )
        )
    return tuple(table)


def check_success_rate(value: object) -> float:
    """Return a success rate that can only be a probability.

    Raises:
        ValueError: It is not a number from 0.0 to 1.0, looks like percent, or is the integer 1,
            which may mean 1 % or always.

    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"success_rate is {value!r}; give a probability from 0.0 to 1.0")
    if isinstance(value, int) and value == 1:
        raise ValueError(
            "success_rate is 1, which may mean 1 % or always; write 1.0 for always, 0.01 for 1 %"
        )
    if 1 < value <= 100:
        raise ValueError(
            f"success_rate is {value!r}, which looks like percent; write {value / 100:g}"
        )
    if not 0 <= value <= 1:
        raise ValueError(f"success_rate is {value!r}; give a probability from 0.0 to 1.0")
    return float(value)


def render(lake: Lake, player: int) -> tuple[str, ...]:
    """Draw one row of symbols per row: `_` ice, `O` hole, `G` goal, `P` player.

    `X` is the player in a hole and `√` the player on the goal; the start is ice like any other.
    """
    symbols = [HOLE if lake.is_hole(cell) else FROZEN for cell in range(lake.size**2)]
    symbols[lake.goal] = GOAL
    on_goal = PLAYER_ON_GOAL if player == lake.goal else PLAYER
    symbols[player] = PLAYER_IN_HOLE if lake.is_hole(player) else on_goal
    return _rows("".join(symbols), lake.size)


def canonical_hash(lake: Lake) -> str:
    """Return the sha256 of the lake, equal for all eight symmetric pictures of it."""
    return hash_of_pictures(render(lake, lake.start))


def near_hash(lake: Lake) -> str:
    """Return the sha256 of the holes alone, equal for all eight pictures: any start, any goal."""
    cells = "".join(HOLE if lake.is_hole(cell) else FROZEN for cell in range(lake.size**2))
    return hash_of_pictures(_rows(cells, lake.size))


def _outcome(lake: Lake, cell: int, direction: int, probability: float) -> Outcome:
    reached = move(lake.size, cell, direction)
    return Outcome(probability, reached, float(reached == lake.goal), lake.is_end(reached))


def _rows(cells: str, size: int) -> tuple[str, ...]:
    return tuple(cells[i : i + size] for i in range(0, len(cells), size))
