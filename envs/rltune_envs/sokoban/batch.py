"""Many rooms stepped at once in numpy, by the rules of `rules`; a finished episode starts again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rltune_envs.sokoban.env import BOX_REWARD, SOLVED_REWARD, STEP_REWARD
from rltune_envs.sokoban.rules import Level

_FREE, _WALL, _BOX = range(3)


@dataclass(frozen=True, slots=True)
class BatchStep:
    """The result of one action in each of B rooms.

    Attributes:
        rewards_B: By the protocol of `env`, format penalties aside.
        terminated_B: Whether the room was solved.
        truncated_B: Whether the limit of actions ended the episode instead.

    """

    rewards_B: NDArray[np.float64]
    terminated_B: NDArray[np.bool_]
    truncated_B: NDArray[np.bool_]


class SokobanBatch:
    """B rooms of one height and width; the numbers of boxes may differ.

    Args:
        levels: The rooms, unsolved.
        max_actions: Actions per episode.

    """

    def __init__(self, levels: Sequence[Level], *, max_actions: int) -> None:
        height, width = levels[0].height, levels[0].width
        if any((level.height, level.width) != (height, width) for level in levels):
            raise ValueError("all rooms of a batch need one height and one width")
        n = height * width
        self._max_actions = max_actions
        self._deltas = np.array(levels[0].deltas)
        self._offsets_B = np.arange(len(levels), dtype=np.int64) * n
        self._starts_Bn = np.array([_contents(level, n) for level in levels], dtype=np.int8)
        # The cells of all rooms in one long row. Behind a wall is a cell of the neighbouring room,
        # whose value is read but not used; hence one more row at the end.
        self._contents = np.append(self._starts_Bn.ravel(), np.zeros(width, dtype=np.int8))
        self._contents_Bn: NDArray[np.int8] = self._contents[:-width].reshape(-1, n)
        targets = [level.targets >> cell & 1 for level in levels for cell in range(n)]
        self._is_target = np.array(targets + [0] * width, dtype=np.int8)
        players = [level.start.player for level in levels]
        self._start_cells_B = self._offsets_B + np.array(players, dtype=np.int64)
        self._start_away_B = np.array(
            [(level.start.boxes & ~level.targets).bit_count() for level in levels]
        )
        self._cells_B = self._start_cells_B.copy()
        self._away_B = self._start_away_B.copy()  # boxes that are not on a target
        self._actions_B = np.zeros(len(levels), dtype=np.int64)

    @property
    def players_B(self) -> NDArray[np.int64]:
        """Cells of the players, after a finished episode started again."""
        return self._cells_B - self._offsets_B

    @property
    def boxes_Bn(self) -> NDArray[np.bool_]:
        """Whether there is a box, for each room and cell."""
        is_box_Bn: NDArray[np.bool_] = self._contents_Bn == _BOX
        return is_box_Bn

    def step(self, actions_B: NDArray[np.int64]) -> BatchStep:
        """Execute one action in every room.

        Args:
            actions_B: Indices into `rules.ACTIONS`.

        """
        deltas_B = self._deltas[actions_B]
        ahead_B = self._cells_B + deltas_B
        behind_B = ahead_B + deltas_B
        content_B = self._contents[ahead_B]
        pushes_B = (content_B == _BOX) & (self._contents[behind_B] == _FREE)
        self._cells_B = np.where(pushes_B | (content_B == _FREE), ahead_B, self._cells_B)
        left_B, came_B = ahead_B[pushes_B], behind_B[pushes_B]
        self._contents[left_B] = _FREE
        self._contents[came_B] = _BOX
        home_B = np.zeros(len(actions_B), dtype=np.int64)  # boxes that came home, less those gone
        home_B[pushes_B] = self._is_target[came_B] - self._is_target[left_B]
        self._away_B -= home_B
        self._actions_B += 1
        terminated_B = self._away_B == 0
        truncated_B = (self._actions_B >= self._max_actions) & ~terminated_B
        self._restart(terminated_B | truncated_B)
        rewards_B = STEP_REWARD + BOX_REWARD * home_B + SOLVED_REWARD * terminated_B
        return BatchStep(rewards_B, terminated_B, truncated_B)

    def _restart(self, done_B: NDArray[np.bool_]) -> None:
        (rooms,) = done_B.nonzero()
        self._contents_Bn[rooms] = self._starts_Bn[rooms]
        self._cells_B[rooms] = self._start_cells_B[rooms]
        self._away_B[rooms] = self._start_away_B[rooms]
        self._actions_B[rooms] = 0


def _contents(level: Level, n: int) -> list[int]:
    boxes, walls = level.start.boxes, level.walls
    return [(boxes >> cell & 1) * _BOX + (walls >> cell & 1) * _WALL for cell in range(n)]
