"""The optional parts of an environment: each makes one thing possible, and none is needed to train.

An environment has a protocol when its class has the protocol's methods; nothing is inherited or
registered. Ask `supports(env, HasExpert)`, never `isinstance`: a wrapper has every method, and
answers for the environment that it wraps.
"""

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from rltune_envs.base import GoldResponse, TextEnv
from rltune_envs.errors import ProtocolError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

P = TypeVar("P")


@runtime_checkable
class WritesActions(Protocol):
    """Its turns have named actions, which it can write as a response."""

    def format_response(self, actions: Sequence[str]) -> str:
        """Write the actions of one turn as a well-formed response, its prefix included."""


@runtime_checkable
class HasExpert(WritesActions, Protocol):
    """A perfect player: to watch, to demonstrate, and to prove that tasks can be solved."""

    def expert_actions(self) -> tuple[str, ...] | None:
        """Return what a perfect player does this turn; None when no solution is left."""


@runtime_checkable
class HasRandomPlayer(WritesActions, Protocol):
    """A random player: its success rate is the floor, computed or measured."""

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Return what the random player does this turn: as much as a turn allows, well formed."""


@runtime_checkable
class HasFloor(Protocol):
    """The floor is known exactly."""

    def random_success_probability(self, seed: int) -> float:
        """Return the exact probability that the random player solves the task of `seed`."""


@runtime_checkable
class HasCeiling(Protocol):
    """The ceiling is known exactly."""

    def optimal_success_probability(self, seed: int) -> float:
        """Return the exact probability that a perfect player solves it within the limits."""


@runtime_checkable
class HasDistance(Protocol):
    """How far it is to a solution is known in every state, as judges of single turns need it."""

    def distance_to_go(self) -> int | None:
        """Return how far a perfect player has to go from here, limits and luck aside.

        The unit is the environment's: actions, or facts still to be found. 0 when the task is
        solved, None when no solution is left.

        Raises:
            SearchLimitError: The search would take too long.

        """


@runtime_checkable
class HasGoldResponse(Protocol):
    """What is right to say is known in every state, as information gain needs it."""

    def gold_response(self) -> GoldResponse | None:
        """Return what a perfect player would say now.

        None when there is nothing right to say: no solution is left, or the episode is over.

        Raises:
            SearchLimitError: The search would take too long.

        """


@runtime_checkable
class HasGold(Protocol):
    """There is more to know about a task than it shows: what a verifier is given."""

    def gold(self, seed: int) -> Mapping[str, Any]:
        """Return what a verifier may know about the task of `seed`, as plain JSON values."""


@runtime_checkable
class HasParts(Protocol):
    """It has a limited number of tasks, and says which are for training and which to measure on."""

    def part_seeds(self, part: str) -> Sequence[int]:
        """Return the seeds of a part: `train`, `heldout` or `test`. No task is in two parts."""


@runtime_checkable
class HasFiles(Protocol):
    """Its tasks are rows of files."""

    def file_digests(self) -> Mapping[str, str]:
        """Return the name of each file as it was given -> sha256 of its content."""


@runtime_checkable
class HasRepeatedRows(Protocol):
    """It reads rows of files, of which some may ask the same as others."""

    def repeated_rows(self) -> int:
        """Return how many rows it left out because an earlier one asks the same."""


@runtime_checkable
class HasShortestResponses(Protocol):
    """The least that a policy must be able to write is known before training."""

    def shortest_responses(self) -> tuple[str, ...]:
        """Return the shortest well-formed responses, prefix included, one for each action.

        A policy that can write none of them, because of its tokenizer or token limit, is refused:
        it could not learn.
        """


@runtime_checkable
class HasSymbols(Protocol):
    """Its observations are drawn with symbols that a policy must be able to tell apart."""

    def cell_symbols(self) -> str:
        """Return the characters that draw the observations, one for each meaning."""


@runtime_checkable
class HasEvalSets(Protocol):
    """It is measured on named sets of tasks, apart from those that it is trained on."""

    def eval_sets(self) -> Mapping[str, int]:
        """Return the names of the sets, each with what is added to a seed to name a task of it.

        The facts of such a task give the name of its set under `base.SET`.

        Held-out and test tasks then come from the sets, equally many from each. None: they come
        from the seeds that training tasks come from.
        """


def supports(env: object, protocol: type[P]) -> "TypeIs[P]":
    """Return whether an environment has all methods of a protocol of this module."""
    return isinstance(env, TextEnv) and env.supports_protocol(protocol)


def require(env: TextEnv, protocol: type[P]) -> P:
    """Return the environment as one that has a protocol.

    Raises:
        ProtocolError: It lacks it.

    """
    if supports(env, protocol):
        return env
    raise lack_of(env, protocol)


def lack_of(env: TextEnv, protocol: type) -> ProtocolError:
    """Return the error that names the methods of a protocol that an environment lacks.

    Where it lacks none, a wrapper does not pass them on, and all are named.
    """
    kind, names = type(env.unwrapped), methods_of(protocol)
    lacking = tuple(name for name in names if not callable(getattr(kind, name, None)))
    return ProtocolError(kind.__name__, lacking or names)


def methods_of(protocol: type) -> tuple[str, ...]:
    """Return the names of a protocol's methods."""
    kinds = reversed(protocol.__mro__)
    return tuple(name for kind in kinds for name in vars(kind) if not name.startswith("_"))
