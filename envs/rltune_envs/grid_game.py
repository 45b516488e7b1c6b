"""The common part of grid games: limits, parsing, the turn loop, and how a turn is shown."""

import random
from abc import abstractmethod
from collections.abc import Sequence

from rltune_envs.base import FailureClass, GoldResponse, Step, TextEnv
from rltune_envs.choices import PROMPTS, require_choice
from rltune_envs.grid_text import OBSERVATIONS, turn_text
from rltune_envs.parse import SEPARATOR, ParsedActions, parse_actions


class GridGame(TextEnv):
    """A game of named moves on a board; a subclass has the board and its rules.

    Args:
        action_names: What a response may name.
        max_turns: Responses per episode.
        max_actions_per_turn: Actions executed from one response.
        max_actions: Actions per episode.
        format_penalty: Added once to the reward of a turn whose response is bad.
        prompt: One of `choices.PROMPTS`; `compact` asks for the answer alone, without thoughts.
        observation: One of `OBSERVATIONS`: what a natural prompt shows.

    Raises:
        ValueError: `prompt` or `observation` is none of these.

    """

    def __init__(
        self,
        action_names: tuple[str, ...],
        *,
        max_turns: int,
        max_actions_per_turn: int,
        max_actions: int,
        format_penalty: float,
        prompt: str,
        observation: str,
    ) -> None:
        require_choice("prompt", prompt, PROMPTS)
        require_choice("observation", observation, OBSERVATIONS)
        self.action_names = action_names
        self.max_turns = max_turns
        self.max_actions_per_turn = max_actions_per_turn
        self.max_actions = max_actions
        self.format_penalty = format_penalty
        self.is_compact = prompt == "compact"
        self.observation = observation
        self._turns = 0
        self._actions = 0
        self._last: Step | None = None

    @property
    def system_prompt(self) -> str:
        """Rules and symbols in words; empty for the compact prompt."""
        return "" if self.is_compact else self._instruction()

    @property
    def response_prefix(self) -> str:
        """The opening tag that the policy continues."""
        return "<answer>" if self.is_compact else "<think>"

    def reset(self, *, seed: int) -> str:
        """Start the task of `seed` and show it."""
        self._set_up(seed)
        self._turns = self._actions = 0
        self._last = None
        return self._observe(reward=None, is_valid=True)

    def step(self, response: str) -> Step:
        """Execute the actions of one response, up to the first invalid name, within the limits."""
        if self._last is not None and self._last.has_ended:
            return self._last.repeated()
        parsed = parse_actions(
            response,
            names=self.action_names,
            limit=self._actions_of_turn,
            needs_think=not self.is_compact,
        )
        reward = 0.0 if parsed.is_valid else self.format_penalty
        executed: list[str] = []
        for name in parsed.actions:
            reward += self._move(self.action_names.index(name))
            self._actions += 1
            executed.append(name)
            if self._is_over:
                break
        self._turns += 1
        self._last = self._record(parsed, tuple(executed), reward)
        return self._last

    def format_response(self, actions: Sequence[str]) -> str:
        """Write actions as the answer, with an empty think block where the prompt asks for one."""
        if self.is_compact:
            return f"<answer>{SEPARATOR.join(actions)}</answer>"
        return f"<think></think> <answer>{f' {SEPARATOR} '.join(actions)}</answer>"

    @abstractmethod
    def expert_actions(self) -> tuple[str, ...] | None:
        """Return what a perfect player does this turn; None when no solution is left."""

    def shortest_responses(self) -> tuple[str, ...]:
        """Return each action as the whole answer, after an empty thought where the prompt asks."""
        thought = "" if self.is_compact else "<think></think>"
        return tuple(f"{thought}<answer>{name}</answer>" for name in self.action_names)

    def cell_symbols(self) -> str:
        """Return the symbols of the grid; none where only coordinates are shown."""
        is_drawn = self.is_compact or self.observation != "coord"
        return self._symbols if is_drawn else ""

    def gold_response(self) -> GoldResponse | None:
        """Return the actions of a perfect player in this turn; None when there are none."""
        actions = () if self._has_ended else self.expert_actions() or ()
        if not actions:
            return None
        actions = actions[: self._actions_of_turn]
        text = self.format_response(actions).removeprefix(self.response_prefix)
        before, tag, rest = text.rpartition("<answer>")
        gold, end, after = rest.partition("</answer>")
        return GoldResponse(before + tag, (gold,), end + after)

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Return uniformly random actions, as many as a turn allows."""
        return tuple(rng.choice(self.action_names) for _ in range(max(1, self._actions_of_turn)))

    @property
    def _actions_of_turn(self) -> int:
        """Most actions that this turn can execute."""
        return min(self.max_actions_per_turn, self.max_actions - self._actions)

    @property
    def _has_ended(self) -> bool:
        return self._last is not None and self._last.has_ended

    def _record(self, parsed: ParsedActions, executed: tuple[str, ...], reward: float) -> Step:
        success, ended = self._is_solved, self._is_over
        out = self._turns >= self.max_turns or self._actions >= self.max_actions
        has_failed = (ended or out) and not success
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
            failure_class=self._failure(parsed) if has_failed else FailureClass.NONE,
        )

    def _failure(self, parsed: ParsedActions) -> FailureClass:
        """Return why an ended episode is not a success."""
        if self._is_lost:
            return FailureClass.LOST
        return FailureClass.UNFINISHED if parsed.is_valid else FailureClass.MALFORMED

    def _observe(self, *, reward: float | None, is_valid: bool) -> str:
        if self.is_compact:
            return self._compact_board()
        return turn_text(
            self._board(),
            turn=self._turns + 1,
            actions_left=self.max_actions - self._actions,
            reward=reward,
            valid=is_valid,
        )

    @property
    @abstractmethod
    def _symbols(self) -> str:
        """The symbols that the board is drawn with."""

    @abstractmethod
    def _instruction(self) -> str:
        """Return the rules in words, with what is needed to read the board."""

    @abstractmethod
    def _set_up(self, seed: int) -> None:
        """Set up the board of a seed."""

    @abstractmethod
    def _move(self, action: int) -> float:
        """Execute one action, an index into `action_names`, and return what it earns."""

    @abstractmethod
    def _board(self) -> str:
        """Return the state as a natural prompt shows it."""

    @abstractmethod
    def _compact_board(self) -> str:
        """Return the state as a compact prompt shows it: one symbol a cell, without breaks."""

    @property
    @abstractmethod
    def _is_solved(self) -> bool:
        """Whether the task is solved."""

    @property
    @abstractmethod
    def _is_over(self) -> bool:
        """Whether the game itself has ended."""

    @property
    @abstractmethod
    def _is_lost(self) -> bool:
        """Whether it is certain that no solution is left."""
