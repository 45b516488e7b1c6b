"""FrozenLake as a text environment: prompts, parsing and the reward of the published protocol.

The goal earns 1, everything else 0, and a turn with a bad response `format_penalty` (reference:
RAGEN, Gymnasium).
"""

from functools import lru_cache

from rltune_envs.base import Task
from rltune_envs.errors import EnvError
from rltune_envs.frozen_lake.generate import generate
from rltune_envs.frozen_lake.rules import (
    ACTIONS,
    Lake,
    canonical_hash,
    check_success_rate,
    move,
    near_hash,
    render,
    slip,
)
from rltune_envs.frozen_lake.solve import (
    MAX_PLAN,
    PerfectPlayer,
    perfect_player,
    random_success_probability,
    shortest_way,
)
from rltune_envs.frozen_lake.text import SYMBOLS, board, instruction
from rltune_envs.grid_game import GridGame
from rltune_envs.streams import stream

GOAL_REWARD = 1.0


class FrozenLakeEnv(GridGame):
    """A way over ice to a goal; see the module for the reward.

    Slips follow from the task's seed, `noise_seed` and the number of the executed action: the k-th
    steps of all episodes of one noise seed share their luck, whatever the players choose. Tasks do
    not depend on `success_rate`.

    Args:
        size: Rows, and columns.
        frozen_probability: Probability of a cell to be ice.
        success_rate: Probability that a step goes where it is aimed, a float: 1.0 is always.
        min_difficulty: Least length of a shortest way, in actions.
        max_turns: Responses per episode.
        max_actions_per_turn: Actions executed from one response.
        max_actions: Actions per episode; no lake needs more when nothing slips.
        format_penalty: Added once to the reward of a turn whose response is bad.
        prompt: `natural` describes the task in words and asks for thoughts before the answer;
            `compact` shows the cells only, row by row without breaks, and asks for the answer.
        observation: What a natural prompt shows: `grid`, `coord`, or `grid_coord`.

    Raises:
        ValueError: A value is none of these, or too large for an exact optimum.

    """

    def __init__(
        self,
        *,
        size: int = 4,
        frozen_probability: float = 0.9,
        success_rate: float = 1.0,
        min_difficulty: int = 1,
        max_turns: int = 5,
        max_actions_per_turn: int = 2,
        max_actions: int = 10,
        format_penalty: float = -0.1,
        prompt: str = "natural",
        observation: str = "grid",
    ) -> None:
        super().__init__(
            ACTIONS,
            max_turns=max_turns,
            max_actions_per_turn=max_actions_per_turn,
            max_actions=min(max_actions, max_turns * max_actions_per_turn),
            format_penalty=format_penalty,
            prompt=prompt,
            observation=observation,
        )
        self.success_rate = check_success_rate(success_rate)
        self.is_deterministic = self.success_rate == 1.0
        if not self.is_deterministic and max_actions_per_turn > MAX_PLAN:
            raise ValueError(
                f"max_actions_per_turn is {max_actions_per_turn}; on ice that slips at most "
                f"{MAX_PLAN}, so that the ceiling can be computed"
            )
        self.size = size
        self.frozen_probability = frozen_probability
        self.min_difficulty = min_difficulty
        self._lake: Lake | None = None
        self._cell = 0
        self._luck: tuple[float, ...] = ()

    @property
    def lake(self) -> Lake:
        """The lake that is being played."""
        if self._lake is None:
            raise EnvError("call reset(seed=...) first")
        return self._lake

    def task(self, seed: int) -> Task:
        """Describe the lake of `seed`."""
        return _describe(self._lake_of(seed), seed)

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return the best plan for this turn; None in a hole or without turns left."""
        if self._is_lost:
            return None
        if self._is_solved:
            return ()
        turns, actions = self.max_turns - self._turns, self.max_actions - self._actions
        if not turns or not actions:
            return None
        if self.is_deterministic:
            way = shortest_way(self.lake, self._cell) or ()
            plan = way[: self._actions_of_turn]
        else:
            plan = self._player(self.lake).plan(self._cell, turns=turns, actions=actions)
        return tuple(ACTIONS[action] for action in plan)

    def distance_to_go(self) -> int | None:
        """Return the length of a shortest way to the goal on ice that does not slip, in actions."""
        way = shortest_way(self.lake, self._cell)
        return None if way is None else len(way)

    def random_success_probability(self, seed: int) -> float:
        """Return the exact success probability of random actions, equal for any success rate."""
        return random_success_probability(self._lake_of(seed), max_actions=self.max_actions)

    def optimal_success_probability(self, seed: int) -> float:
        """Return the exact success probability of the best player, who sees slips between turns."""
        lake = self._lake_of(seed)
        if self.is_deterministic:
            return 1.0  # the generator accepts no longer way
        return self._player(lake).success_probability(
            lake.start, turns=self.max_turns, actions=self.max_actions
        )

    @property
    def _symbols(self) -> str:
        return SYMBOLS

    def _instruction(self) -> str:
        return instruction(
            observation=self.observation,
            size=self.size,
            success_rate=self.success_rate,
            limit=self.max_actions_per_turn,
        )

    def _set_up(self, seed: int) -> None:
        self._lake = self._lake_of(seed)
        self._cell = self._lake.start
        self._luck = _luck(seed, self.noise_seed, self.max_actions)

    def _move(self, action: int) -> float:
        direction = slip(action, luck=self._luck[self._actions], success_rate=self.success_rate)
        self._cell = move(self.size, self._cell, direction)
        return GOAL_REWARD if self._is_solved else 0.0

    def _board(self) -> str:
        return board(self.lake, self._cell, observation=self.observation)

    def _compact_board(self) -> str:
        return "".join(render(self.lake, self._cell))

    @property
    def _is_solved(self) -> bool:
        return self._cell == self.lake.goal

    @property
    def _is_over(self) -> bool:
        return self.lake.is_end(self._cell)

    @property
    def _is_lost(self) -> bool:
        return self.lake.is_hole(self._cell)

    def _lake_of(self, seed: int) -> Lake:
        return _generate(
            self.size, self.frozen_probability, self.min_difficulty, self.max_actions, seed
        )

    def _player(self, lake: Lake) -> PerfectPlayer:
        return perfect_player(lake, self.success_rate, self.max_actions_per_turn)


@lru_cache(maxsize=65536)
def _generate(
    size: int, frozen_probability: float, min_difficulty: int, max_difficulty: int, seed: int
) -> Lake:
    """Cached: the members of a group, and all gates, play the same lakes."""
    return generate(
        seed,
        size=size,
        frozen_probability=frozen_probability,
        min_difficulty=min_difficulty,
        max_difficulty=max_difficulty,
    )


@lru_cache(maxsize=65536)
def _describe(lake: Lake, seed: int) -> Task:
    content = canonical_hash(lake)
    return Task(
        task_id=f"frozen_lake-{content[:12]}",
        seed=seed,
        content_hash=content,
        near_hash=near_hash(lake),
        difficulty=len(shortest_way(lake, lake.start) or ()),
        facts={"holes": lake.holes.bit_count()},
    )


@lru_cache(maxsize=65536)
def _luck(seed: int, noise_seed: int, n: int) -> tuple[float, ...]:
    """Return the uniform number of each step of an episode."""
    rng = stream(f"frozen_lake/slip/{seed}/{noise_seed}", n_bytes=16)
    return tuple(rng.random() for _ in range(n))
