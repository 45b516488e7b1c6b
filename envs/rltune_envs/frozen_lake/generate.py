"""Lakes from a seed: random ice, start and goal, with a way between them."""

from rltune_envs.errors import GenerationError
from rltune_envs.frozen_lake.rules import Lake
from rltune_envs.frozen_lake.solve import shortest_way
from rltune_envs.streams import stream

MAX_ATTEMPTS = 10_000


def generate(
    seed: int, *, size: int, frozen_probability: float, min_difficulty: int, max_difficulty: int
) -> Lake:
    """Return the lake of a seed: its shortest way is within the difficulty band.

    Start and goal are two random cells, always ice (as published; Gymnasium has them in corners).

    Args:
        seed: Names the lake; equal arguments give the equal lake in every process.
        size: Rows, and columns.
        frozen_probability: Probability of a cell to be ice.
        min_difficulty: Least length of a shortest way, in actions.
        max_difficulty: Greatest length of a shortest way, in actions.

    Raises:
        GenerationError: None of `MAX_ATTEMPTS` lakes was within the band.

    """
    key = f"frozen_lake/{size}/{frozen_probability}/{min_difficulty}/{max_difficulty}/{seed}"
    rng = stream(key, n_bytes=16)
    for _ in range(MAX_ATTEMPTS):
        start, goal = rng.sample(range(size**2), 2)
        holes = sum(1 << cell for cell in range(size**2) if rng.random() >= frozen_probability)
        lake = Lake(size, holes & ~(1 << start | 1 << goal), start, goal)
        way = shortest_way(lake, start)
        if way is not None and min_difficulty <= len(way) <= max_difficulty:
            return lake
    raise GenerationError(
        f"no {size}x{size} lake with frozen_probability {frozen_probability} and a shortest way of "
        f"{min_difficulty} to {max_difficulty} actions in {MAX_ATTEMPTS} attempts for seed {seed}; "
        "raise frozen_probability, widen the band, or use another size"
    )
