"""Sokoban as a text environment: prompts, parsing and the reward of the published protocol.

Per executed action -0.1, +1 for each box that comes to a target, -1 for each that leaves one, +10
when all are on targets; per turn with a bad response `format_penalty`. One box solved in k actions
earns 11 - 0.1 k (reference: RAGEN, gym-sokoban).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from rltune_envs.base import Step, Task, TextEnv
from rltune_envs.parse import SEPARATOR, parse_actions
from rltune_envs.sokoban.generate import CertifiedLevel, generate
from rltune_envs.sokoban.rules import ACTIONS, Level, State, render
from rltune_envs.sokoban.solve import random_success_probability, shortest_solution

STEP_REWARD = -0.1
BOX_REWARD = 1.0
SOLVED_REWARD = 10.0
PROMPTS = ("natural", "compact")

_INSTRUCTION = (
    "You're a helpful assistant. You are solving the Sokoban puzzle. You are the player and you "
    "need to push all boxes to targets. When you are right next to a box, you can push it by "
    "moving in the same direction. You cannot push a box through a wall, and you cannot pull a "
    "box.\n"
    "The meaning of each symbol in the state is:\n"
    " #: wall, _: empty, O: target, √: box on target, X: box, P: player, S: player on target\n"
    "Your available actions are:\n Up, Down, Left, Right\n"
    f'You can make up to {{limit}} actions, separated by the action separator " {SEPARATOR} "'
)


class SokobanEnv(TextEnv):
    """One box (or more) in a walled room; see the module for the reward.

    Args:
        size: Rows and columns, walls included.
        boxes: Boxes to push.
        search_depth: Backward steps of the generator; more makes harder levels.
        max_turns: Responses per episode.
        max_actions_per_turn: Actions executed from one response.
        max_actions: Actions per episode; no level needs more.
        format_penalty: Added once to the reward of a turn whose response is bad.
        prompt: `natural` describes the task in words and asks for thoughts before the answer;
            `compact` shows the inner cells only, row by row without breaks, and asks for the
            answer.

    Raises:
        ValueError: `prompt` is neither.

    """

    def __init__(
        self,
        *,
        size: int = 6,
        boxes: int = 1,
        search_depth: int = 100,
        max_turns: int = 5,
        max_actions_per_turn: int = 2,
        max_actions: int = 10,
        format_penalty: float = -0.1,
        prompt: str = "natural",
    ) -> None:
        if prompt not in PROMPTS:
            raise ValueError(f"prompt is {prompt!r}; choose one of {', '.join(PROMPTS)}")
        self.size = size
        self.boxes = boxes
        self.search_depth = search_depth
        self.max_turns = max_turns
        self.max_actions_per_turn = max_actions_per_turn
        self.max_actions = max_actions
        self.format_penalty = format_penalty
        self.is_compact = prompt == "compact"
        self._level: Level | None = None
        self._state = State(0, 0)
        self._turns = 0
        self._actions = 0
        self._last: Step | None = None

    @property
    def system_prompt(self) -> str:
        """Rules and symbols in words; empty for the compact prompt."""
        return "" if self.is_compact else _INSTRUCTION.format(limit=self.max_actions_per_turn)

    @property
    def response_prefix(self) -> str:
        """The opening tag that the policy goes on from."""
        return "<answer>" if self.is_compact else "<think>"

    @property
    def level(self) -> Level:
        """The room that is being played."""
        if self._level is None:
            raise RuntimeError("call reset(seed=...) first")
        return self._level

    @property
    def state(self) -> State:
        """Where player and boxes are now."""
        return self._state

    def reset(self, *, seed: int) -> str:
        """Start the level of `seed` and show it."""
        self._level = self._certified(seed).level
        self._state = self._level.start
        self._turns = self._actions = 0
        self._last = None
        return self._observation(reward=None, is_valid=True)

    def step(self, response: str) -> Step:
        """Execute the actions of one response, up to the first bad name and within the limits."""
        level = self.level
        last = self._last
        if last is not None and (last.terminated or last.truncated):
            return Step(
                last.observation,
                reward=0.0,
                terminated=last.terminated,
                truncated=last.truncated,
                success=last.success,
            )
        limit = min(self.max_actions_per_turn, self.max_actions - self._actions)
        parsed = parse_actions(
            response, names=ACTIONS, limit=limit, needs_think=not self.is_compact
        )
        reward = 0.0 if parsed.is_valid else self.format_penalty
        executed: list[str] = []
        for name in parsed.actions:
            reward += self._move(ACTIONS.index(name))
            executed.append(name)
            if level.is_solved(self._state):
                break
        self._turns += 1
        self._actions += len(executed)
        success = level.is_solved(self._state)
        out = self._turns >= self.max_turns or self._actions >= self.max_actions
        self._last = Step(
            self._observation(reward=reward, is_valid=parsed.is_valid),
            reward=reward,
            terminated=success,
            truncated=out and not success,
            success=success,
            actions=tuple(executed),
            is_valid=parsed.is_valid,
            n_invalid=parsed.n_invalid,
            n_over_limit=parsed.n_over_limit,
        )
        return self._last

    def task(self, seed: int) -> Task:
        """Describe the level of `seed`."""
        certified = self._certified(seed)
        return Task(
            task_id=f"sokoban-{certified.content_hash[:12]}",
            seed=seed,
            content_hash=certified.content_hash,
            optimal_actions=len(certified.solution),
        )

    @property
    def action_names(self) -> tuple[str, ...]:
        """The four directions."""
        return ACTIONS

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

    def random_success_probability(self, seed: int) -> float:
        """Return the exact success probability of uniform random actions on the level of `seed`.

        The random player names the full number of actions each turn and never a bad one.
        """
        return random_success_probability(
            self._certified(seed).level, max_actions=self._action_limit
        )

    def _move(self, action: int) -> float:
        before = (self._state.boxes & self.level.targets).bit_count()
        self._state = self.level.step(self._state, action)
        after = (self._state.boxes & self.level.targets).bit_count()
        solved = SOLVED_REWARD if self.level.is_solved(self._state) else 0.0
        return STEP_REWARD + BOX_REWARD * (after - before) + solved

    def _certified(self, seed: int) -> CertifiedLevel:
        return _generate(self.size, self.boxes, self.search_depth, self._action_limit, seed)

    @property
    def _action_limit(self) -> int:
        """Most actions that an episode can execute."""
        return min(self.max_actions, self.max_turns * self.max_actions_per_turn)

    def _observation(self, *, reward: float | None, is_valid: bool) -> str:
        rows = render(self.level, self._state)
        if self.is_compact:
            return "".join(row[1:-1] for row in rows[1:-1])
        feedback = "" if reward is None else f"Reward:\n{reward:g}\n\n"
        warning = (
            ""
            if is_valid
            else "The last response was not a valid list of actions; what followed the first "
            "invalid action was not executed.\n"
        )
        return (
            f"{feedback}Turn {self._turns + 1}:\nState:\n" + "\n".join(rows) + f"\n{warning}"
            f"You have {self.max_actions - self._actions} actions left. Always output: "
            "<think> [Your thoughts] </think> <answer> [your answer] </answer> with no extra text. "
            "Strictly follow this format. Max response length: 120 words."
        )


@lru_cache(maxsize=65536)
def _generate(
    size: int, boxes: int, search_depth: int, max_moves: int, seed: int
) -> CertifiedLevel:
    """Cache: the members of a group, and every gate, play the same levels."""
    return generate(
        seed, height=size, width=size, boxes=boxes, search_depth=search_depth, max_moves=max_moves
    )
