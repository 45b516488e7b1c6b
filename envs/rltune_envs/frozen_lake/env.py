"""FrozenLake as a text environment: prompts, parsing and the reward of the published protocol.

The goal earns 1, everything else 0, and a turn with a bad response `format_penalty` (reference:
RAGEN, Gymnasium).
"""

import hashlib
import random
from collections.abc import Sequence
from functools import lru_cache

from rltune_envs.base import FailureClass, Step, Task, TextEnv
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
from rltune_envs.frozen_lake.text import OBSERVATIONS, board, instruction, turn_text
from rltune_envs.parse import SEPARATOR, ParsedActions, parse_actions

GOAL_REWARD = 1.0
PROMPTS = ("natural", "compact")


class FrozenLakeEnv(TextEnv):
    """A way over ice to a goal; see the module for the reward.

    Slips follow from the task's seed and the number of the executed action alone: whatever the
    members of a group choose, their k-th steps share their luck. The tasks do not depend on
    `success_rate`.

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
        _require("prompt", prompt, PROMPTS)
        _require("observation", observation, OBSERVATIONS)
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
        self.max_turns = max_turns
        self.max_actions_per_turn = max_actions_per_turn
        self.max_actions = min(max_actions, max_turns * max_actions_per_turn)
        self.format_penalty = format_penalty
        self.is_compact = prompt == "compact"
        self.observation = observation
        self._lake: Lake | None = None
        self._cell = self._turns = self._actions = 0
        self._luck: tuple[float, ...] = ()
        self._last: Step | None = None

    @property
    def system_prompt(self) -> str:
        """Rules and symbols in words; empty for the compact prompt."""
        if self.is_compact:
            return ""
        return instruction(
            observation=self.observation,
            size=self.size,
            success_rate=self.success_rate,
            limit=self.max_actions_per_turn,
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
    def lake(self) -> Lake:
        """The lake that is being played."""
        if self._lake is None:
            raise EnvError("call reset(seed=...) first")
        return self._lake

    def reset(self, *, seed: int) -> str:
        """Start the lake of `seed` and show it."""
        self._lake = self._lake_of(seed)
        self._cell = self._lake.start
        self._luck = _luck(seed, self.max_actions)
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
        executed = self._walk(parsed.actions)
        self._turns += 1
        self._last = self._record(parsed, executed)
        return self._last

    def task(self, seed: int) -> Task:
        """Describe the lake of `seed`."""
        return _describe(self._lake_of(seed), seed)

    def format_response(self, actions: Sequence[str]) -> str:
        """Write actions as the answer, with an empty think block where the prompt asks for one."""
        if self.is_compact:
            return f"<answer>{SEPARATOR.join(actions)}</answer>"
        return f"<think></think> <answer>{f' {SEPARATOR} '.join(actions)}</answer>"

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return the plan of this turn with the best odds; None in a hole or without turns left."""
        if self.lake.is_hole(self._cell):
            return None
        if self._cell == self.lake.goal:
            return ()
        turns, actions = self.max_turns - self._turns, self.max_actions - self._actions
        if not turns or not actions:
            return None
        if self.is_deterministic:
            way = shortest_way(self.lake, self._cell) or ()
            plan = way[: min(self.max_actions_per_turn, actions)]
        else:
            plan = self._player(self.lake).plan(self._cell, turns=turns, actions=actions)
        return tuple(ACTIONS[action] for action in plan)

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Return uniformly random directions, as many as a turn allows."""
        limit = min(self.max_actions_per_turn, self.max_actions - self._actions)
        return tuple(rng.choice(ACTIONS) for _ in range(max(1, limit)))

    def random_success_probability(self, seed: int) -> float:
        """Return the exact success probability of random actions; the same at any slip."""
        return random_success_probability(self._lake_of(seed), max_actions=self.max_actions)

    def optimal_success_probability(self, seed: int) -> float:
        """Return the exact success probability of the best player, who sees slips between turns."""
        lake = self._lake_of(seed)
        if self.is_deterministic:
            return 1.0  # the generator takes no lake with a longer way
        return self._player(lake).success_probability(
            lake.start, turns=self.max_turns, actions=self.max_actions
        )

    def _walk(self, actions: Sequence[str]) -> tuple[str, ...]:
        executed: list[str] = []
        for name in actions:
            luck = self._luck[self._actions]
            direction = slip(ACTIONS.index(name), luck=luck, success_rate=self.success_rate)
            self._cell = move(self.size, self._cell, direction)
            self._actions += 1
            executed.append(name)
            if self.lake.is_end(self._cell):
                break
        return tuple(executed)

    def _record(self, parsed: ParsedActions, executed: tuple[str, ...]) -> Step:
        success, lost = self._cell == self.lake.goal, self.lake.is_hole(self._cell)
        ended = success or lost
        out = self._turns >= self.max_turns or self._actions >= self.max_actions
        reward = (0.0 if parsed.is_valid else self.format_penalty) + GOAL_REWARD * success
        failure = FailureClass.NONE
        if lost:
            failure = FailureClass.LOST
        elif out and not success:
            failure = FailureClass.UNFINISHED if parsed.is_valid else FailureClass.MALFORMED
        return Step(
            self._observe(reward=reward, is_valid=parsed.is_valid),
            reward=reward,
            terminated=ended,
            truncated=out and not ended,
            success=success,
            actions=executed,
            is_valid=parsed.is_valid,
            n_invalid=parsed.n_invalid,
            n_over_limit=parsed.n_over_limit,
            failure_class=failure,
        )

    def _observe(self, *, reward: float | None, is_valid: bool) -> str:
        if self.is_compact:
            return "".join(render(self.lake, self._cell))
        return turn_text(
            board(self.lake, self._cell, observation=self.observation),
            turn=self._turns + 1,
            actions_left=self.max_actions - self._actions,
            reward=reward,
            valid=is_valid,
        )

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
    """Cache: the members of a group, and every gate, play the same lakes."""
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
def _luck(seed: int, n: int) -> tuple[float, ...]:
    """Return the uniform number of each step of an episode."""
    digest = hashlib.sha256(f"frozen_lake/slip/{seed}".encode()).digest()
    rng = random.Random(int.from_bytes(digest[:16]))
    return tuple(rng.random() for _ in range(n))


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
