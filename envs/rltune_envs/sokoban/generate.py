"""Levels from a seed: carve a room, play backwards from the solved position, certify.

The recipe follows gym-sokoban (random walk with small stamps, reverse play). It differs where that
one breaks experiments: the seed alone decides, retries are derived from a sha256 and are bounded,
and every level carries the exact length of its shortest solution.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from rltune_envs.errors import GenerationError
from rltune_envs.sokoban.rules import Level, State, canonical_hash, inner_cells
from rltune_envs.sokoban.solve import shortest_solution

_T = TypeVar("_T")

MAX_ATTEMPTS = 1000
_TURN_PROBABILITY = 0.35  # the walk changes direction this often, as in gym-sokoban
_PULL_PROBABILITY = 0.7  # a backward step that could drag a box along does so this often
_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
_STAMPS = (  # (row, column) offsets that one step of the walk opens
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, 0), (1, 0), (0, 1)),
    ((0, 0), (1, 0), (0, 1), (1, 1)),
    ((0, 0), (1, 0), (0, -1)),
)


@dataclass(frozen=True, slots=True)
class CertifiedLevel:
    """A level with the solver's certificate.

    Attributes:
        level: Room and start.
        solution: One shortest solution, as indices into `rules.ACTIONS`; never empty.
        content_hash: `rules.canonical_hash` of the level.

    """

    level: Level
    solution: tuple[int, ...]
    content_hash: str


def generate(
    seed: int, *, height: int, width: int, boxes: int, search_depth: int, max_moves: int
) -> CertifiedLevel:
    """Return the level of `seed`: solvable in 1 to `max_moves` actions.

    Args:
        seed: Names the level; equal arguments give the equal level in every process.
        height: Rows, walls included; at least 4.
        width: Columns, walls included; at least 4. A box needs three cells in line to be pulled, so
            4x4 has no level.
        boxes: Number of boxes and targets.
        search_depth: Backward steps from the solved position. More steps make harder levels.
        max_moves: Longest shortest solution that is accepted, in actions.

    Raises:
        GenerationError: None of `MAX_ATTEMPTS` attempts gave an acceptable level.

    """
    for attempt in range(MAX_ATTEMPTS):
        key = f"sokoban/{height}x{width}/{boxes}/{search_depth}/{max_moves}/{seed}/{attempt}"
        rng = random.Random(int.from_bytes(hashlib.sha256(key.encode()).digest()[:16]))
        level = _attempt(rng, height, width, boxes, search_depth)
        if level is None:
            continue
        solution = shortest_solution(level, max_moves=max_moves)
        if solution is not None:
            return CertifiedLevel(level, solution, canonical_hash(level))
    raise GenerationError(
        f"no {height}x{width} level with {boxes} boxes, search_depth {search_depth} and at most "
        f"{max_moves} moves in {MAX_ATTEMPTS} attempts for seed {seed}; "
        "use fewer boxes, a larger room, or a larger max_moves"
    )


def _attempt(
    rng: random.Random, height: int, width: int, boxes: int, search_depth: int
) -> Level | None:
    opened = _carve(rng, height, width)
    floor = [cell for cell in range(height * width) if opened >> cell & 1]
    if len(floor) < 2 * boxes + 1:
        return None
    walls = (1 << (height * width)) - 1 - opened
    *target_cells, player = rng.sample(floor, boxes + 1)
    targets = sum(1 << cell for cell in target_cells)
    start = _play_backwards(rng, walls, width, State(player, targets), search_depth)
    # As in the published generator, no box starts at home.
    return None if start.boxes & targets else Level(height, width, walls, targets, start)


def _carve(rng: random.Random, height: int, width: int) -> int:
    """Open cells along a random walk; the border stays wall."""
    stamps = _stamps_at_origin(width)
    row, column = rng.randrange(1, height - 1), rng.randrange(1, width - 1)
    step = _pick(rng, _DIRECTIONS)
    opened = 0
    for _ in range(int(1.7 * (height + width))):
        if rng.random() < _TURN_PROBABILITY:
            step = _pick(rng, _DIRECTIONS)
        row = min(max(row + step[0], 1), height - 2)
        column = min(max(column + step[1], 1), width - 2)
        opened |= _pick(rng, stamps) << ((row - 1) * width + column - 1)
    return opened & inner_cells(height, width)


@cache
def _stamps_at_origin(width: int) -> tuple[int, ...]:
    """Return the stamps as cells around (1, 1), so that a shift moves them."""
    return tuple(
        sum(1 << ((1 + row) * width + 1 + column) for row, column in stamp) for stamp in _STAMPS
    )


def _play_backwards(rng: random.Random, walls: int, width: int, solved: State, steps: int) -> State:
    """Walk at random from the solved position, dragging boxes along; every step can be undone."""
    player, boxes = solved.player, solved.boxes
    deltas = (-width, width, -1, 1)
    for _ in range(steps):
        delta = _pick(rng, deltas)
        cell = player + delta
        if (walls | boxes) >> cell & 1:
            continue
        box = player - delta
        if boxes >> box & 1 and rng.random() < _PULL_PROBABILITY:
            boxes ^= (1 << box) ^ (1 << player)
        player = cell
    return State(player, boxes)


def _pick(rng: random.Random, options: Sequence[_T]) -> _T:
    """Draw one option; `random.choice` is slower and may change with Python's version."""
    n = len(options)
    n_bits = n.bit_length()
    while (index := rng.getrandbits(n_bits)) >= n:
        pass
    return options[index]
