"""The player of the contract checker: whole episodes that follow from the seed alone."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rltune_envs.base import Step, TextEnv
from rltune_envs.errors import ContractError, SearchLimitError
from rltune_envs.protocols import (
    HasExpert,
    HasGoldResponse,
    HasRandomPlayer,
    HasShortestResponses,
    require,
    supports,
)
from rltune_envs.record_checks import broken

PLAIN = "<answer>1</answer>"
"""A response to environments of which no other is known."""

Transcript = tuple[str, tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class Player:
    """Makes environments and plays them; holds no state between calls.

    Attributes:
        make_env: Makes a fresh environment, the same one each time.
        max_turns: An episode that is longer is taken to never end.
        threads: Threads that play at once in the clause about threads.

    """

    make_env: Callable[[], TextEnv]
    max_turns: int
    threads: int = 8

    def play(self, env: TextEnv, seed: int) -> Transcript:
        """Play a mixture of expert, random and empty responses, of those that there are."""
        return env.reset(seed=seed), tuple(self.steps(env, seed))

    def play_alone(self, seed: int) -> Transcript:
        """Play in a fresh environment."""
        return self.play(self.make_env(), seed)

    def steps(self, env: TextEnv, seed: int) -> Iterator[Step]:
        """Play on in a running episode; the responses follow from seed and state alone."""
        rng = random.Random(seed)
        for _ in range(self.max_turns):
            step = env.step(_some_response(env, rng))
            yield step
            if step.has_ended:
                return
        raise self.endless(seed)

    def endless(self, seed: int) -> ContractError:
        """Return the error of an episode without an end."""
        detail = f"it still runs after {self.max_turns} turns; truncate it at a limit"
        return broken("every episode ends", seed, detail)


def random_response(env: TextEnv, rng: random.Random) -> str:
    """Return a response of the random player; without one, a text that may be understood."""
    if supports(env, HasRandomPlayer):
        return env.format_response(env.random_actions(rng))
    return rng.choice((*_known_responses(env), PLAIN))


def expert_of(env: TextEnv) -> tuple[str, ...] | None:
    """Return what the expert does now; None where it gives up, or there is none."""
    return env.expert_actions() if supports(env, HasExpert) else None


def _some_response(env: TextEnv, rng: random.Random) -> str:
    kind = rng.randrange(4)
    if kind == 0:
        return ""
    if kind > 1 and supports(env, HasExpert) and (expert := env.expert_actions()):
        return env.format_response(expert)
    return random_response(env, rng)


def _known_responses(env: TextEnv) -> tuple[str, ...]:
    shortest = env.shortest_responses() if supports(env, HasShortestResponses) else ()
    return (*shortest, *(_golds(env) if supports(env, HasGoldResponse) else ()))


def _golds(env: TextEnv) -> tuple[str, ...]:
    try:
        gold = require(env, HasGoldResponse).gold_response()
    except SearchLimitError:
        return ()
    return tuple(env.response_prefix + text for text in gold.texts) if gold else ()
