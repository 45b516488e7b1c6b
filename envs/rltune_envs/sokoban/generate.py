"""Levels from a seed: carve a room, play backwards from the solved position, certify.

The recipe follows gym-sokoban (random walk with small stamps, reverse play). It differs where that
one breaks experiments: the seed alone decides, retries are bounded and derived from a sha256, and
every level carries a shortest solution.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from rltune_envs.errors import GenerationError, SearchLimitError
from rltune_envs.sokoban.rules import Level, State, canonical_hash, inner_cells
from rltune_envs.sokoban.solve import shortest_solution
from rltune_envs.streams import stream

_T = TypeVar("_T")

MAX_ATTEMPTS = 10_000
MAX_NODES = 50_000  # positions searched for a certificate; a harder level is not used
MAX_UNPROVEN = 20  # such levels, after which the requested kind counts as too hard
_TURN_PROBABILITY = 0.35  # of the walk at each step, as in gym-sokoban
_PULL_PROBABILITY = 0.7  # of a backward step that can drag a box along
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
    seed: int,
    *,
    height: int,
    width: int,
    boxes: int,
    search_depth: int,
    max_moves: int,
    min_moves: int = 1,
) -> CertifiedLevel:
    """Return the level of `seed`: solvable in `min_moves` to `max_moves` actions.

    Args:
        seed: Names the level; equal arguments give the equal level in every process.
        height: Rows, walls included; at least 4.
        width: Columns, walls included; at least 4. A box needs three cells in line to be pulled, so
            4x4 has no level.
        boxes: Number of boxes and targets.
        search_depth: Backward steps from the solved position. More steps make harder levels; many
            boxes need many steps to leave home.
        max_moves: Greatest accepted length of a shortest solution, in actions.
        min_moves: Least one. The first attempt inside the band counts, so a wider band changes a
            level only where it admits an earlier attempt.

    Raises:
        GenerationError: No attempt was acceptable, or too many were too hard to certify.

    """
    n_unproven = 0
    for attempt in range(MAX_ATTEMPTS):
        key = f"sokoban/{height}x{width}/{boxes}/{search_depth}/{max_moves}/{seed}/{attempt}"
        rng = stream(key, n_bytes=16)
        level = _attempt(rng, height, width, boxes, search_depth)
        if level is None:
            continue
        try:
            solution = shortest_solution(level, max_moves=max_moves, max_nodes=MAX_NODES)
        except SearchLimitError:
            n_unproven += 1
            if n_unproven == MAX_UNPROVEN:
                break
            continue
        if solution is not None and len(solution) >= min_moves:
            return CertifiedLevel(level, solution, canonical_hash(level))
    raise GenerationError(
        f"no {height}x{width} level with {boxes} boxes, search_depth {search_depth} and "
        f"{min_moves} to {max_moves} moves in {attempt + 1} attempts for seed {seed} "
        f"({n_unproven} were too hard to certify); use fewer boxes, another search_depth, a larger "
        "room, or a wider band of moves"
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
    # As in the published generator, no box starts on a target.
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
    """Walk at random from the solved position, dragging boxes along; every step can be undone.

    With more than two boxes the end of the walk seldom has none of them at home, so the last
    position on the way that has none counts.
    """
    player, boxes = solved.player, solved.boxes
    is_crowded, away = boxes.bit_count() > 2, None
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
        if is_crowded and not boxes & solved.boxes:
            away = State(player, boxes)
    return away or State(player, boxes)


def _pick(rng: random.Random, options: Sequence[_T]) -> _T:
    """Draw one option; `random.choice` is slower, and may change with the Python version."""
    n = len(options)
    n_bits = n.bit_length()
    while (index := rng.getrandbits(n_bits)) >= n:
        pass
    return options[index]
