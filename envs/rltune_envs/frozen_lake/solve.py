"""Exact answers about a lake: the shortest way, and what random and perfect players achieve."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rltune_envs.frozen_lake.rules import ACTIONS, Lake, move, transition_table

Values = NDArray[np.float64]
MAX_PLAN = 6  # actions: 4**6 plans a turn; more would take too much memory
_TIE = 1e-12  # plans whose values differ by less are tied; the first wins


def shortest_way(lake: Lake, cell: int) -> tuple[int, ...] | None:
    """Return the actions of a shortest way to the goal on ice that does not slip.

    Breadth-first; ties go to the earlier action in the order of `ACTIONS`. None when there is no
    way, or the cell is a hole.
    """
    if lake.is_hole(cell):
        return None
    ways: dict[int, tuple[int, ...]] = {cell: ()}
    frontier = [cell]
    while frontier and lake.goal not in ways:
        reached = []
        for here in frontier:
            for action in range(4):
                there = move(lake.size, here, action)
                if there not in ways and not lake.is_hole(there):
                    ways[there] = (*ways[here], action)
                    reached.append(there)
        frontier = reached
    return ways.get(lake.goal)


def random_success_probability(lake: Lake, *, max_actions: int) -> float:
    """Return the exact probability that uniform random actions reach the goal.

    The success rate does not matter: when all four aims are equally likely, so are all four
    directions. Each is aimed at, or is one of the two sides of an aim, with probability
    (s + 2 (1 - s) / 2) / 4 = 1/4.
    """
    alive, goal = np.zeros(lake.size**2), 0.0
    alive[lake.start] = 1.0
    matrix, to_goal = _random_walk(lake)
    for _ in range(max_actions):
        goal += float(alive @ to_goal)
        alive = alive @ matrix
    return goal


def _random_walk(lake: Lake) -> tuple[Values, Values]:
    """Return the probabilities from cell to living cell, and from cell to the goal, of one step."""
    n = lake.size**2
    matrix, to_goal = np.zeros((n, n)), np.zeros(n)
    for cell in range(n):
        for action in range(4):
            there = move(lake.size, cell, action)
            if there == lake.goal:
                to_goal[cell] += 0.25
            elif not lake.is_hole(there):
                matrix[cell, there] += 0.25
    return matrix, to_goal


class PerfectPlayer:
    """The best player when a turn commits to a plan before its slips are seen.

    Exact dynamic programming over turns and actions left. A turn's plan has one to
    `max_actions_per_turn` actions; the episode ends inside it at a hole or the goal.

    Args:
        lake: The lake.
        success_rate: Probability that a step goes where it is aimed.
        max_actions_per_turn: Longest plan, at most `MAX_PLAN`.

    """

    def __init__(self, lake: Lake, *, success_rate: float, max_actions_per_turn: int) -> None:
        self._longest = max_actions_per_turn
        self._n = lake.size**2
        self._matrices = np.zeros((4, self._n, self._n))
        self._to_goal = np.zeros((4, self._n))
        for cell, actions in enumerate(transition_table(lake, success_rate)):
            for action, outcomes in enumerate(actions):
                for outcome in outcomes if not lake.is_end(cell) else ():
                    self._to_goal[action, cell] += outcome.probability * outcome.reward
                    if not outcome.terminated:
                        self._matrices[action, cell, outcome.cell] += outcome.probability
        self._solved: dict[tuple[int, int], tuple[Values, list[tuple[int, ...]]]] = {}

    def success_probability(self, cell: int, *, turns: int, actions: int) -> float:
        """Return the probability of reaching the goal with so many turns and actions left."""
        return float(self._solve(turns, actions)[0][cell])

    def plan(self, cell: int, *, turns: int, actions: int) -> tuple[int, ...]:
        """Return the best actions of this turn; at least one turn and one action must be left."""
        return self._solve(turns, actions)[1][cell]

    def _solve(self, turns: int, actions: int) -> tuple[Values, list[tuple[int, ...]]]:
        """Return for each cell the value and the best plan."""
        actions = min(actions, turns * self._longest)  # more cannot be used
        if (turns, actions) not in self._solved:
            self._solved[turns, actions] = self._improve(turns, actions)
        return self._solved[turns, actions]

    def _improve(self, turns: int, actions: int) -> tuple[Values, list[tuple[int, ...]]]:
        best = np.zeros(self._n)
        plans: list[tuple[int, ...]] = [(0,)] * self._n
        for length in range(1, min(self._longest, actions) + 1):
            later = self._solve(turns - 1, actions - length)[0]
            values = later[None]
            for _ in range(length):  # the last action first: plan p is action p // 4**(length - 1)
                spread = np.einsum("acd,pd->apc", self._matrices, values)
                values = (self._to_goal[:, None] + spread).reshape(-1, self._n)
            # Rounding must not choose between tied plans.
            choice = (values >= values.max(axis=0) - _TIE).argmax(axis=0)
            for cell in np.flatnonzero(values.max(axis=0) > best + _TIE):
                best[cell] = values[choice[cell], cell]
                plans[cell] = _digits(int(choice[cell]), length)
        return best, plans


@lru_cache(maxsize=8192)
def perfect_player(lake: Lake, success_rate: float, max_actions_per_turn: int) -> PerfectPlayer:
    """Return the perfect player of a lake, which keeps its results."""
    return PerfectPlayer(lake, success_rate=success_rate, max_actions_per_turn=max_actions_per_turn)


def _digits(number: int, length: int) -> tuple[int, ...]:
    """Return the plan of a number: base 4, first action first."""
    n = len(ACTIONS)
    return tuple(number // n**place % n for place in reversed(range(length)))
