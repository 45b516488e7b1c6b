"""Random numbers by name: a key alone decides a stream, in every process and thread."""

import hashlib
import random


def stream(key: str, *, n_bytes: int = 32) -> random.Random:
    """Return the random number generator of a key.

    Args:
        key: Names the purpose of the numbers.
        n_bytes: Leading bytes of the key's sha256 that seed it.

    """
    return random.Random(int.from_bytes(hashlib.sha256(key.encode()).digest()[:n_bytes]))
