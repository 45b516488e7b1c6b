"""An environment around another one: what a subclass does not change is asked of the inner one."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rltune_envs.base import GoldResponse, Step, Task, TextEnv

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
        return self._ask("format_response", lambda: self.inner.format_response(actions))

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return what its perfect player does."""
        return self._ask("expert_actions", self.inner.expert_actions)

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Return what its random player does."""
        return self._ask("random_actions", lambda: self.inner.random_actions(rng))

    def random_success_probability(self, seed: int) -> float:
        """Return its floor."""
        name = "random_success_probability"
        return self._ask(name, lambda: self.inner.random_success_probability(seed))

    def optimal_success_probability(self, seed: int) -> float:
        """Return its ceiling."""
        name = "optimal_success_probability"
        return self._ask(name, lambda: self.inner.optimal_success_probability(seed))

    def shortest_responses(self) -> tuple[str, ...]:
        """Return its shortest well-formed responses."""
        return self._ask("shortest_responses", self.inner.shortest_responses)

    def cell_symbols(self) -> str:
        """Return the symbols of its board."""
        return self._ask("cell_symbols", self.inner.cell_symbols)

    def gold(self, seed: int) -> Mapping[str, Any]:
        """Return what a verifier may know about the task of `seed`."""
        return self._ask("gold", lambda: self.inner.gold(seed))

    def distance_to_go(self) -> int | None:
        """Return its distance to go."""
        return self._ask("distance_to_go", self.inner.distance_to_go)

    def gold_response(self) -> GoldResponse | None:
        """Return what its perfect player says."""
        return self._ask("gold_response", self.inner.gold_response)
