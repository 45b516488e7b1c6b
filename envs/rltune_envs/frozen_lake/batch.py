"""Many lakes stepped at once in numpy, by the rules of `rules`; a finished episode starts again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rltune_envs.frozen_lake.rules import Lake, move


@dataclass(frozen=True, slots=True)
class BatchStep:
    """The result of one action in each of B lakes.

    Attributes:
        cells_B: Where the players are, after a finished episode started again.
        rewards_B: 1 where the goal was reached.
        terminated_B: Whether the episode ended.

    """

    cells_B: NDArray[np.int64]
    rewards_B: NDArray[np.float64]
    terminated_B: NDArray[np.bool_]


class LakeBatch:
    """B lakes of one size.

    Args:
        lakes: The lakes.
        success_rate: Probability that a step goes where it is aimed.

    """

    def __init__(self, lakes: Sequence[Lake], *, success_rate: float) -> None:
        size = lakes[0].size
        if any(lake.size != size for lake in lakes):
            raise ValueError("all lakes of a batch need one size")
        n = size**2
        self._success_rate = success_rate
        # One table for all lakes: which cell a direction leads to, as index into (B, n).
        neighbours = np.array(
            [[move(size, cell, action) for action in range(4)] for cell in range(n)]
        )
        self._neighbours = neighbours.ravel()
        self._offsets_B = np.arange(len(lakes)) * n
        self._is_goal = np.array(
            [[cell == lake.goal for cell in range(n)] for lake in lakes]
        ).ravel()
        self._is_end = np.array(
            [[lake.is_end(cell) for cell in range(n)] for lake in lakes]
        ).ravel()
        self._starts_B = np.array([lake.start for lake in lakes])
        self.cells_B = self._starts_B.copy()

    def step(self, actions_B: NDArray[np.int64], luck_B: NDArray[np.float64]) -> BatchStep:
        """Make one step in every lake.

        Args:
            actions_B: Indices into `rules.ACTIONS`: where the steps are aimed.
            luck_B: Uniform numbers in [0, 1), one a step; see `rules.slip`.

        """
        s = self._success_rate
        turn_B = (luck_B >= s).astype(np.int64) - 2 * (luck_B >= (1 + s) / 2)
        reached_B = self._neighbours[self.cells_B * 4 + (actions_B + turn_B) % 4]
        indices_B = self._offsets_B + reached_B
        terminated_B = self._is_end[indices_B]
        rewards_B = self._is_goal[indices_B].astype(np.float64)
        self.cells_B = np.where(terminated_B, self._starts_B, reached_B)
        return BatchStep(self.cells_B, rewards_B, terminated_B)
