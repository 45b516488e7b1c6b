"""Named random streams: every draw is a pure function of (seed, purpose, indices).

There is no generator to save: a resumed trial draws what the uninterrupted one would have drawn,
and two conditions with one seed see the same tasks and the same sampling noise.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def stream_seed(seed: int, purpose: str, *indices: int) -> int:
    """Return the 64-bit seed of one named stream.

    Args:
        seed: The trial's seed.
        purpose: What is drawn, such as `tasks`, `sampling`, `minibatch`.
        indices: Step, group, member: whatever tells draws of one purpose apart.

    """
    key = "/".join((str(seed), purpose, *map(str, indices)))
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])


def noise_seed(seed: int, purpose: str, *indices: int) -> int:
    """Return the seed of an environment's luck in one visit to a task.

    All members of a group share it, and so do all conditions of one seed; the next visit to the
    task has another. It is below 2**53, so that every reader of JSON keeps it.

    Args:
        seed: The trial's seed.
        purpose: What the episodes are for: `train`, `heldout`, `test`.
        indices: Which visit: whatever tells those of one purpose apart.

    """
    return stream_seed(seed, f"noise/{purpose}", *indices) >> 11


def uniforms(seeds_B: NDArray[np.uint64], counters_B: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return one uniform number in [0, 1) for each (seed, counter) pair.

    SplitMix64 (Steele, Lea, Flood 2014) evaluated at position `counter` of the sequence of `seed`:
    a row's numbers do not depend on which other rows share its batch.

    Shapes:
        seeds_B, counters_B and the result are (B,).
    """
    with np.errstate(over="ignore"):
        z = seeds_B + (counters_B.astype(np.uint64) + np.uint64(1)) * _GAMMA
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)) * 2.0**-53)


def permutation(n: int, seed: int) -> NDArray[np.int64]:
    """Return a shuffled `arange(n)`."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(n)
