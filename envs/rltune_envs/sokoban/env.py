"""Sokoban as a text environment: prompts, parsing and the reward of the published protocol.

Per executed action -0.1, +1 for each box that comes to a target, -1 for each that leaves one, +10
when all are on targets; per turn with a bad response `format_penalty`. One box solved in k actions
earns 11 - 0.1 k (reference: RAGEN, gym-sokoban).
"""

from dataclasses import replace
from functools import lru_cache

from rltune_envs.base import Task
from rltune_envs.choices import require_choice
from rltune_envs.errors import EnvError
from rltune_envs.grid_game import GridGame
from rltune_envs.sokoban.deadlock import is_deadlocked
from rltune_envs.sokoban.rules import ACTIONS, Level, State
from rltune_envs.sokoban.solve import random_success_probability, shortest_solution
from rltune_envs.sokoban.tasks import LevelTask, TaskSource
from rltune_envs.sokoban.text import SYMBOLS, board, inner_board, instruction

STEP_REWARD = -0.1
BOX_REWARD = 1.0
SOLVED_REWARD = 10.0


class SokobanEnv(GridGame):
    """One box (or more) in a walled room; see the module for the reward.

    Args:
        size: Rows and columns, walls included.
        boxes: Boxes to push.
        search_depth: Backward steps of the generator; more makes harder levels.
        min_difficulty: Least length of a shortest solution, in actions.
        max_difficulty: Greatest one; None allows what an episode can execute.
        levels: Path of an XSB or Boxoban file to play instead of generated levels; size, boxes and
            search_depth then do nothing. Levels outside the band of difficulty are passed over.
        max_turns: Responses per episode.
        max_actions_per_turn: Actions executed from one response.
        max_actions: Actions per episode.
        format_penalty: Added once to the reward of a turn whose response is bad.
        prompt: `natural` describes the task in words and asks for thoughts before the answer;
            `compact` shows the inner cells only, row by row without breaks, and asks for the
            answer.
        observation: What a natural prompt shows: `grid`, `coord`, or `grid_coord`.
        symbols: A name in `text.SYMBOLS`: how a natural prompt draws the grid.

    Raises:
        ValueError: A value is none of these.

    """

    def __init__(
        self,
        *,
        size: int = 6,
        boxes: int = 1,
        search_depth: int = 100,
        min_difficulty: int = 1,
        max_difficulty: int | None = None,
        levels: str | None = None,
        max_turns: int = 5,
        max_actions_per_turn: int = 2,
        max_actions: int = 10,
        format_penalty: float = -0.1,
        prompt: str = "natural",
        observation: str = "grid",
        symbols: str = "standard",
    ) -> None:
        super().__init__(
            ACTIONS,
            max_turns=max_turns,
            max_actions_per_turn=max_actions_per_turn,
            max_actions=max_actions,
            format_penalty=format_penalty,
            prompt=prompt,
            observation=observation,
        )
        require_choice("symbols", symbols, tuple(SYMBOLS))
        self.symbols = symbols
        # Most actions that an episode can execute.
        self._action_limit = min(max_actions, max_turns * max_actions_per_turn)
        self._source = TaskSource(
            size=size,
            boxes=boxes,
            search_depth=search_depth,
            min_difficulty=min_difficulty,
            max_difficulty=self._action_limit if max_difficulty is None else max_difficulty,
            levels=levels,
        )
        self._level: Level | None = None
        self._state = State(0, 0)

    @property
    def level(self) -> Level:
        """The room that is being played."""
        if self._level is None:
            raise EnvError("call reset(seed=...) first")
        return self._level

    @property
    def state(self) -> State:
        """The present positions of player and boxes."""
        return self._state

    def task(self, seed: int) -> Task:
        """Describe the level of `seed`; its facts come from its certificate."""
        known = self._of(seed)
        return Task(
            task_id=f"sokoban-{known.content_hash[:12]}",
            seed=seed,
            content_hash=known.content_hash,
            near_hash=known.near_hash,
            difficulty=len(known.solution),
            facts=known.facts,
        )

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return the first actions of a shortest solution from here, one turn's worth."""
        solution = _solution(replace(self.level, start=self._state))
        if solution is None:
            return None
        return tuple(ACTIONS[action] for action in solution[: self.max_actions_per_turn])

    def distance_to_go(self) -> int | None:
        """Return the length of a shortest solution from here, in actions."""
        solution = _solution(replace(self.level, start=self._state))
        return None if solution is None else len(solution)

    def random_success_probability(self, seed: int) -> float:
        """Return the exact success probability of uniform random actions on the level of `seed`."""
        return random_success_probability(self._of(seed).level, max_actions=self._action_limit)

    def optimal_success_probability(self, seed: int) -> float:
        """Return 1.0 when the shortest solution fits into an episode, else 0.0."""
        return float(len(self._of(seed).solution) <= self._action_limit)

    def _of(self, seed: int) -> LevelTask:
        return self._source.get(seed)

    @property
    def _symbols(self) -> str:
        return SYMBOLS["standard" if self.is_compact else self.symbols]

    def _instruction(self) -> str:
        return instruction(
            observation=self.observation, symbols=self.symbols, limit=self.max_actions_per_turn
        )

    def _set_up(self, seed: int) -> None:
        self._level = self._of(seed).level
        self._state = self._level.start

    def _move(self, action: int) -> float:
        before = (self._state.boxes & self.level.targets).bit_count()
        self._state = self.level.step(self._state, action)
        after = (self._state.boxes & self.level.targets).bit_count()
        solved = SOLVED_REWARD if self._is_solved else 0.0
        return STEP_REWARD + BOX_REWARD * (after - before) + solved

    def _board(self) -> str:
        return board(self.level, self._state, observation=self.observation, symbols=self.symbols)

    def _compact_board(self) -> str:
        return inner_board(self.level, self._state)

    @property
    def _is_solved(self) -> bool:
        return self.level.is_solved(self._state)

    @property
    def _is_over(self) -> bool:
        return self._is_solved  # the game goes on in a deadlock

    @property
    def _is_lost(self) -> bool:
        return is_deadlocked(self.level, self._state)


@lru_cache(maxsize=65536)
def _solution(level: Level) -> tuple[int, ...] | None:
    """Cached: the rest after a turn is asked for again before the next turn."""
    return shortest_solution(level)
