"""The contract of a text environment: `reset(seed)`, `step(response)`, and what they return.

The words are Gymnasium's. One difference: an action is the policy's whole response of one turn, as
text, so that parsing belongs to the environment and a bad response is an outcome, not an exception.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

SET = "eval_set"
"""Key of `Task.facts`: name of the set that a task to be measured on belongs to."""


class FailureClass(StrEnum):
    """Why an episode is not a success; set on the step that ends it."""

    NONE = "none"  # it is a success, or still runs
    WRONG = "wrong"  # it ended with an outcome that the verifier rejects
    LOST = "lost"  # it reached a state without a solution
    UNFINISHED = "unfinished"  # a limit ended it before any outcome
    MALFORMED = "malformed"  # a limit ended it, and the last response could not be read
    FAULT = "fault"  # something outside the policy failed; the episode teaches nothing


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one turn.

    Attributes:
        observation: Text that the policy reads next.
        reward: Sum over the executed actions, format penalty included.
        terminated: The task itself ended (solved, answered, or lost). Value bootstrapping stops.
        truncated: A limit ended the episode (turns or actions).
        success: The task is solved.
        actions: Names of the actions that were executed, in order.
        is_valid: The response parsed and named allowed actions only; then `n_invalid` is 0.
        n_invalid: Action names that were refused; execution stopped at the first.
        n_over_limit: Allowed action names beyond the limits, which were not executed.
        failure_class: Why the episode is not a success; `none` while it runs.
        auxiliary: Named measures of the whole episode, on the step that ends it (`em`, `f1`).
        fault: A failure outside the policy in this turn (of a retriever, a verifier), in one line;
            else empty. An episode with a fault is masked out of training and counted.

    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    actions: tuple[str, ...] = ()
    is_valid: bool = True
    n_invalid: int = 0
    n_over_limit: int = 0
    failure_class: FailureClass = FailureClass.NONE
    auxiliary: Mapping[str, float] = field(default_factory=dict)
    fault: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the episode has ended with it."""
        return self.terminated or self.truncated

    def repeated(self) -> "Step":
        """Return the record of a further step after the end: nothing moves, nothing is earned."""
        return replace(self, reward=0.0, actions=())


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a split: the seed that makes it and what is known about it.

    Attributes:
        task_id: Readable unique name, `sokoban-<12 hex of content_hash>`.
        seed: `reset(seed=seed)` makes this task.
        content_hash: sha256 over the canonical content. Equal tasks have equal hashes, and so have
            mirrored or turned levels and reworded questions.
        near_hash: sha256 over what near-duplicates share: the same room from another start, the
            same evidence under another question.
        difficulty: In the unit of `TextEnv.difficulty_unit`: the exact length of a shortest
            solution in actions, or the number of hops. None where it is unknown.
        facts: Further facts as plain JSON values (`pushes`, `kind`, `source`).

    """

    task_id: str
    seed: int
    content_hash: str
    near_hash: str
    difficulty: int | None
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)


def task_of(
    kind: str,
    content: str,
    seed: int,
    *,
    near: str | None = None,
    difficulty: int | None = None,
    facts: Mapping[str, str | int | float | bool] | None = None,
) -> Task:
    """Return the task of a seed, named and hashed by its content.

    Args:
        kind: First part of its name.
        content: Canonical text of the task; equal for tasks that are to count as the same.
        seed: Makes it.
        near: Text that near-duplicates share; the content by default.
        difficulty: In the environment's unit, from 1; None where unknown.
        facts: What else is known.

    """
    content_hash, near_hash = (
        hashlib.sha256(text.encode()).hexdigest()
        for text in (content, content if near is None else near)
    )
    name = f"{kind}-{content_hash[:12]}"
    return Task(name, seed, content_hash, near_hash, difficulty, dict(facts or {}))


@dataclass(frozen=True, slots=True)
class GoldResponse:
    """The response of a perfect player; before + gold + after is well formed.

    Attributes:
        before: Text up to the gold part, the response prefix left out.
        golds: The gold part, in every correct form.
        after: Text after it.

    """

    before: str
    golds: tuple[str, ...]
    after: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The whole response, without the prefix, in every correct form."""
        return tuple(f"{self.before}{gold}{self.after}" for gold in self.golds)


class TextEnv(ABC):
    """A multi-turn text environment: `reset`, `step`, and a name for each task.

    What else it may have is in `protocols`: an expert, a random player, exact odds.

    `reset(seed)` and `noise_seed` are the only sources of randomness: the same two give the same
    episode for the same responses, in every process and thread. The seed makes the task; the luck
    of an episode follows from both, so that a repeated task has fresh luck. A step after the end
    changes nothing and earns nothing. `checks.check_env` checks all of this.
    """

    is_deterministic: bool = True
    """Whether the same actions always lead to the same outcome. If not, the expert is optimal in
    expectation only."""

    noise_seed: int = 0
    """Names the luck of the next episodes; the player sets it before `reset`. A deterministic
    environment ignores it; a wrapper hands it on."""

    difficulty_unit: str = "actions"
    """Unit of `Task.difficulty`."""

    auxiliary_names: tuple[str, ...] = ()
    """Keys of `Step.auxiliary` on the step that ends an episode: all of them, every time."""

    @property
    def system_prompt(self) -> str:
        """Text shown once, before the first observation; may be empty."""
        return ""

    @property
    def response_prefix(self) -> str:
        """Text that every response starts with; the policy is given it and does not sample it."""
        return ""

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
    def unwrapped(self) -> "TextEnv":
        """The environment inside all wrappers."""
        return self

    def supports_protocol(self, protocol: type) -> bool:
        """Return whether it has the methods of a protocol; ask `protocols.supports`."""
        return issubclass(type(self), protocol)
