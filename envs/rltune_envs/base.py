"""The contract of a text environment: `reset(seed)`, `step(response)`, and what they return.

The words are Gymnasium's. One difference: an action is the policy's whole response of one turn, as
text, so that parsing belongs to the environment and a bad response is an outcome, not an exception.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """What one turn led to.

    Attributes:
        observation: Text that the policy reads next.
        reward: Sum over the executed actions, format penalty included.
        terminated: The task itself ended (here: solved). Value bootstrapping stops.
        truncated: A limit ended the episode (turns or actions).
        success: The task is solved.
        actions: Names of the actions that were executed, in order.
        is_valid: The response parsed and named allowed actions only; then `n_invalid` is 0.
        n_invalid: Action names that were refused; execution stopped at the first.
        n_over_limit: Allowed action names beyond the limits, which were not executed.

    """

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    actions: tuple[str, ...] = ()
    is_valid: bool = True
    n_invalid: int = 0
    n_over_limit: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a split: the seed that makes it and what is known about it.

    Attributes:
        task_id: Readable unique name, `sokoban-<12 hex of content_hash>`.
        seed: `reset(seed=seed)` makes this task.
        content_hash: sha256 over the canonical content; equal tasks have equal hashes.
        optimal_actions: Exact length of a shortest solution, in actions.

    """

    task_id: str
    seed: int
    content_hash: str
    optimal_actions: int


class TextEnv(ABC):
    """A multi-turn text environment.

    `reset(seed)` is the only source of randomness: the same seed gives the same episode for the
    same responses, in every process and thread. A step after the end changes nothing and earns
    nothing. `checks.check_env` proves all of it.
    """

    @property
    @abstractmethod
    def system_prompt(self) -> str:
        """Text shown once, before the first observation; may be empty."""

    @property
    @abstractmethod
    def response_prefix(self) -> str:
        """Text that every response starts with; it is given to the policy, not sampled."""

    @abstractmethod
    def reset(self, *, seed: int) -> str:
        """Start the task of `seed` and return the first observation."""

    @abstractmethod
    def step(self, response: str) -> Step:
        """Apply one response, its prefix included."""

    @abstractmethod
    def task(self, seed: int) -> Task:
        """Describe the task of `seed` without touching the running episode."""

    @property
    @abstractmethod
    def action_names(self) -> tuple[str, ...]:
        """Names that a response may use."""

    @abstractmethod
    def format_response(self, actions: Sequence[str]) -> str:
        """Write actions as a well-formed response, its prefix included."""

    @abstractmethod
    def expert_actions(self) -> tuple[str, ...] | None:
        """Return what a perfect player does this turn; None when no solution is left."""

    @abstractmethod
    def random_success_probability(self, seed: int) -> float:
        """Return the exact probability that uniformly random actions solve the task of `seed`."""
