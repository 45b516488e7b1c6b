"""Sokoban with its validation levels among the training levels, on purpose: a known pitfall.

Published generators take seeds that differ for levels that differ, and nothing then keeps a level
of one split out of another (docs/comparability.md). Here a task is told apart by its seed likewise,
and what its seed plays is chosen so that the leak is either whole or not there.
"""

from dataclasses import replace

from rltune_envs.base import Task, task_of
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.sokoban.tasks import LevelTask

HELDOUT, TEST = 512, 512  # gate.tasks and gate.test_tasks: seeds are drawn in this order
OTHERS = 1_000_000  # from here on are levels that the held-out tasks do not play


class LeakedLevels(SokobanEnv):
    """Held-out tasks play the first `levels` levels, again and again; so does training, if leaked.

    Without the leak training has as many levels, others. Both conditions thus train on equally
    many, and are evaluated on the same.

    Args:
        levels: How many different levels the held-out tasks play, and how many training has.
        is_leaked: Whether training has those of the held-out tasks.
        prompt: As in `SokobanEnv`.

    """

    def __init__(self, *, levels: int, is_leaked: bool, prompt: str = "compact") -> None:
        super().__init__(prompt=prompt)
        self.n_levels = levels
        self.is_leaked = is_leaked

    def task(self, seed: int) -> Task:
        """Describe the level of `seed` as one of its own, which is the mistake."""
        named = task_of("seed", str(seed), seed)
        return replace(super().task(seed), task_id=named.task_id, content_hash=named.content_hash)

    def _of(self, seed: int) -> LevelTask:
        level = seed % self.n_levels
        if HELDOUT <= seed < HELDOUT + TEST:
            level += 2 * OTHERS
        elif seed >= HELDOUT and not self.is_leaked:
            level += OTHERS
        return super()._of(level)
