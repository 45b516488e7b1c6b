"""Sokoban as a text environment: prompts, parsing and the reward of the published protocol.

Per executed action -0.1, +1 for each box that comes to a target, -1 for each that leaves one, +10
when all are on targets; per turn with a bad response `format_penalty`. One box solved in k actions
earns 11 - 0.1 k (reference: RAGEN, gym-sokoban).
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from rltune_envs.base import FailureClass, Step, Task, TextEnv
from rltune_envs.errors import EnvError
from rltune_envs.parse import SEPARATOR, ParsedActions, parse_actions
from rltune_envs.sokoban.deadlock import is_deadlocked
from rltune_envs.sokoban.rules import ACTIONS, Level, State
from rltune_envs.sokoban.solve import random_success_probability, shortest_solution
from rltune_envs.sokoban.tasks import LevelTask, TaskSource
from rltune_envs.sokoban.text import (
    OBSERVATIONS,
    SYMBOLS,
    board,
    inner_board,
    instruction,
    turn_text,
)

STEP_REWARD = -0.1
BOX_REWARD = 1.0
SOLVED_REWARD = 10.0
PROMPTS = ("natural", "compact")


class SokobanEnv(TextEnv):
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
        _require("prompt", prompt, PROMPTS)
        _require("observation", observation, OBSERVATIONS)
        _require("symbols", symbols, tuple(SYMBOLS))
        self.max_turns = max_turns
        self.max_actions_per_turn = max_actions_per_turn
        self.max_actions = max_actions
        self.format_penalty = format_penalty
        self.is_compact = prompt == "compact"
        self.observation = observation
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
        self._turns = 0
        self._actions = 0
        self._last: Step | None = None

    @property
    def system_prompt(self) -> str:
        """Rules and symbols in words; empty for the compact prompt."""
        if self.is_compact:
            return ""
        return instruction(
            observation=self.observation, symbols=self.symbols, limit=self.max_actions_per_turn
        )

    @property
    def response_prefix(self) -> str:
        """The opening tag that the policy goes on from."""
        return "<answer>" if self.is_compact else "<think>"

    @property
    def action_names(self) -> tuple[str, ...]:
        """The four directions."""
        return ACTIONS

    @property
    def level(self) -> Level:
        """The room that is being played."""
        if self._level is None:
            raise EnvError("call reset(seed=...) first")
        return self._level

    @property
    def state(self) -> State:
        """Where player and boxes are now."""
        return self._state

    def reset(self, *, seed: int) -> str:
        """Start the level of `seed` and show it."""
        self._level = self._of(seed).level
        self._state = self._level.start
        self._turns = self._actions = 0
        self._last = None
        return self._observe(reward=None, is_valid=True)

    def step(self, response: str) -> Step:
        """Execute the actions of one response, up to the first bad name and within the limits."""
        if self._last is not None and (self._last.terminated or self._last.truncated):
            return _repeated(self._last)
        limit = min(self.max_actions_per_turn, self.max_actions - self._actions)
        parsed = parse_actions(
            response, names=ACTIONS, limit=limit, needs_think=not self.is_compact
        )
        reward = 0.0 if parsed.is_valid else self.format_penalty
        executed: list[str] = []
        for name in parsed.actions:
            reward += self._move(ACTIONS.index(name))
            executed.append(name)
            if self.level.is_solved(self._state):
                break
        self._turns += 1
        self._actions += len(executed)
        self._last = self._record(parsed, tuple(executed), reward)
        return self._last

    def task(self, seed: int) -> Task:
        """Describe the level of `seed`; `facts` tells of its certificate and its dead cells."""
        found = self._of(seed)
        return Task(
            task_id=f"sokoban-{found.content_hash[:12]}",
            seed=seed,
            content_hash=found.content_hash,
            near_hash=found.near_hash,
            difficulty=len(found.solution),
            facts=found.facts,
        )

    def format_response(self, actions: Sequence[str]) -> str:
        """Write actions as the answer, with an empty think block where the prompt asks for one."""
        if self.is_compact:
            return f"<answer>{SEPARATOR.join(actions)}</answer>"
        return f"<think></think> <answer>{f' {SEPARATOR} '.join(actions)}</answer>"

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return the first actions of a shortest solution from here, one turn's worth."""
        solution = shortest_solution(replace(self.level, start=self._state))
        if solution is None:
            return None
        return tuple(ACTIONS[action] for action in solution[: self.max_actions_per_turn])

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Return uniformly random directions, as many as a turn allows."""
        limit = min(self.max_actions_per_turn, self.max_actions - self._actions)
        return tuple(rng.choice(ACTIONS) for _ in range(max(1, limit)))

    def random_success_probability(self, seed: int) -> float:
        """Return the exact success probability of uniform random actions on the level of `seed`."""
        return random_success_probability(self._of(seed).level, max_actions=self._action_limit)

    def optimal_success_probability(self, seed: int) -> float:
        """Return 1.0 when the shortest solution fits into an episode, else 0.0."""
        return float(len(self._of(seed).solution) <= self._action_limit)

    def _of(self, seed: int) -> LevelTask:
        return self._source.get(seed)

    def _move(self, action: int) -> float:
        before = (self._state.boxes & self.level.targets).bit_count()
        self._state = self.level.step(self._state, action)
        after = (self._state.boxes & self.level.targets).bit_count()
        solved = SOLVED_REWARD if self.level.is_solved(self._state) else 0.0
        return STEP_REWARD + BOX_REWARD * (after - before) + solved

    def _record(self, parsed: ParsedActions, executed: tuple[str, ...], reward: float) -> Step:
        success = self.level.is_solved(self._state)
        out = self._turns >= self.max_turns or self._actions >= self.max_actions
        return Step(
            self._observe(reward=reward, is_valid=parsed.is_valid),
            reward=reward,
            terminated=success,
            truncated=out and not success,
            success=success,
            actions=executed,
            is_valid=parsed.is_valid,
            n_invalid=parsed.n_invalid,
            n_over_limit=parsed.n_over_limit,
            failure_class=self._failure(parsed) if out and not success else FailureClass.NONE,
        )

    def _failure(self, parsed: ParsedActions) -> FailureClass:
        """Return why an episode that a limit ended is no success.

        Lost is said where it is certain (`is_deadlocked`); the game itself goes on in a dead-lock.
        """
        if is_deadlocked(self.level, self._state):
            return FailureClass.LOST
        return FailureClass.UNFINISHED if parsed.is_valid else FailureClass.MALFORMED

    def _observe(self, *, reward: float | None, is_valid: bool) -> str:
        if self.is_compact:
            return inner_board(self.level, self._state)
        return turn_text(
            board(self.level, self._state, observation=self.observation, symbols=self.symbols),
            turn=self._turns + 1,
            actions_left=self.max_actions - self._actions,
            reward=reward,
            valid=is_valid,
        )


def _repeated(last: Step) -> Step:
    """Return the record of a step after the end: nothing moves and nothing is earned."""
    return Step(
        last.observation,
        reward=0.0,
        terminated=last.terminated,
        truncated=last.truncated,
        success=last.success,
        failure_class=last.failure_class,
    )


def _require(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{key} is {value!r}; choose one of {', '.join(allowed)}")
