"""An environment around another one: what a subclass does not change is asked of the inner one."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from rltune_envs.base import GoldResponse, Step, Task, TextEnv
from rltune_envs.protocols import (
    HasCeiling,
    HasDistance,
    HasEvalSets,
    HasExpert,
    HasFiles,
    HasFloor,
    HasGold,
    HasGoldResponse,
    HasParts,
    HasRandomPlayer,
    HasRepeatedRows,
    HasShortestResponses,
    HasSymbols,
    WritesActions,
    lack_of,
    supports,
)

P = TypeVar("P")
T = TypeVar("T")


class EnvWrapper(TextEnv):
    """Passes every call on; a subclass overrides methods, or `_ask` for all of them.

    Args:
        inner: What is wrapped. It belongs to this object from now on, and gets its `noise_seed` at
            each reset.

    """

    def __init__(self, inner: TextEnv) -> None:
        self.inner = inner
        self.noise_seed = inner.noise_seed
        self.is_deterministic = inner.is_deterministic
        self.difficulty_unit = inner.difficulty_unit
        self.auxiliary_names = inner.auxiliary_names

    def _ask(self, method: str, question: Callable[[], T]) -> T:
        """Return the answer of a method of the inner environment."""
        return question()

    def _inner(self, protocol: type[P]) -> P:
        """Return the inner environment as one that has a protocol.

        Raises:
            ProtocolError: It lacks it, or this wrapper does not pass it on.

        """
        inner = self.inner
        if self.supports_protocol(protocol) and supports(inner, protocol):
            return inner
        raise lack_of(self, protocol)

    @property
    def unwrapped(self) -> TextEnv:
        """The environment inside all wrappers."""
        return self.inner.unwrapped

    def supports_protocol(self, protocol: type) -> bool:
        """Return whether the inner environment has it."""
        return self.inner.supports_protocol(protocol)

    @property
    def system_prompt(self) -> str:
        """The inner environment's."""
        return self.inner.system_prompt

    @property
    def response_prefix(self) -> str:
        """The inner environment's."""
        return self.inner.response_prefix

    def reset(self, *, seed: int) -> str:
        """Start the task of `seed`."""

        def start() -> str:
            self.inner.noise_seed = self.noise_seed
            return self.inner.reset(seed=seed)

        return self._ask("reset", start)

    def step(self, response: str) -> Step:
        """Play one turn."""
        return self._ask("step", lambda: self.inner.step(response))

    def task(self, seed: int) -> Task:
        """Describe the task of `seed`."""
        return self._ask("task", lambda: self.inner.task(seed))

    def format_response(self, actions: Sequence[str]) -> str:
        """Write actions as the inner environment does."""
        write = self._inner(WritesActions).format_response
        return self._ask("format_response", partial(write, actions))

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return what its perfect player does."""
        return self._ask("expert_actions", self._inner(HasExpert).expert_actions)

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Return what its random player does."""
        draw = self._inner(HasRandomPlayer).random_actions
        return self._ask("random_actions", partial(draw, rng))

    def random_success_probability(self, seed: int) -> float:
        """Return its floor."""
        name = "random_success_probability"
        return self._ask(name, partial(self._inner(HasFloor).random_success_probability, seed))

    def optimal_success_probability(self, seed: int) -> float:
        """Return its ceiling."""
        name = "optimal_success_probability"
        return self._ask(name, partial(self._inner(HasCeiling).optimal_success_probability, seed))

    def shortest_responses(self) -> tuple[str, ...]:
        """Return its shortest well-formed responses."""
        return self._ask("shortest_responses", self._inner(HasShortestResponses).shortest_responses)

    def cell_symbols(self) -> str:
        """Return the symbols of its board."""
        return self._ask("cell_symbols", self._inner(HasSymbols).cell_symbols)

    def eval_sets(self) -> Mapping[str, int]:
        """Return its named sets of tasks to be measured on."""
        return self._ask("eval_sets", self._inner(HasEvalSets).eval_sets)

    def gold(self, seed: int) -> Mapping[str, Any]:
        """Return what a verifier may know about the task of `seed`."""
        return self._ask("gold", partial(self._inner(HasGold).gold, seed))

    def part_seeds(self, part: str) -> Sequence[int]:
        """Return the seeds of its part."""
        return self._ask("part_seeds", partial(self._inner(HasParts).part_seeds, part))

    def repeated_rows(self) -> int:
        """Return the number of rows that it left out."""
        return self._ask("repeated_rows", self._inner(HasRepeatedRows).repeated_rows)

    def file_digests(self) -> Mapping[str, str]:
        """Return the digests of its files."""
        return self._ask("file_digests", self._inner(HasFiles).file_digests)

    def distance_to_go(self) -> int | None:
        """Return its distance to go."""
        return self._ask("distance_to_go", self._inner(HasDistance).distance_to_go)

    def gold_response(self) -> GoldResponse | None:
        """Return what its perfect player says."""
        return self._ask("gold_response", self._inner(HasGoldResponse).gold_response)
