"""What the tiny policies were warm-started on: the checker warns where a sweep leaves it."""

from typing import Any

UNSEEN_TASKS = 2048
"""First tasks of `TAUGHT_ENVS` that were kept from a tiny policy's demonstrations.

Held-out and test tasks together must be among them.
"""

TAUGHT_ENVS: dict[str, dict[str, Any]] = {
    "sokoban": {},
    "frozen_lake": {},
    "multihop_qa": {"hops": [2], "kinds": ["bridge"], "k": 1},
}
"""Kinds of env with a tiny policy -> the keys of its env section besides the defaults."""
