"""One hash for all symmetric pictures of a board."""

import hashlib
from collections.abc import Iterator


def hash_of_pictures(rows: tuple[str, ...]) -> str:
    """Return the sha256 of a drawn board, equal for all eight turned and mirrored pictures of it.

    They are the same puzzle under renamed actions, so splits that are disjoint by this hash share
    no board in any orientation.
    """
    return hashlib.sha256(min(_pictures(rows)).encode()).hexdigest()


def _pictures(rows: tuple[str, ...]) -> Iterator[str]:
    for _ in range(4):
        rows = tuple("".join(column) for column in zip(*rows[::-1], strict=True))
        yield "\n".join(rows)
        yield "\n".join(row[::-1] for row in rows)
