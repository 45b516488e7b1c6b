"""The player of the contract checker: whole episodes that follow from the seed alone."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rltune_envs.base import Step, TextEnv
from rltune_envs.errors import ContractError
from rltune_envs.record_checks import broken

Transcript = tuple[str, tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class Player:
    """Makes environments and plays them; holds no state between calls.

    Attributes:
        make_env: Makes a fresh environment, the same one each time.
        max_turns: An episode that is longer is taken to never end.

    """

    make_env: Callable[[], TextEnv]
    max_turns: int

    def play(self, env: TextEnv, seed: int) -> Transcript:
        """Play a mixture of expert, random and empty responses."""
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


def _some_response(env: TextEnv, rng: random.Random) -> str:
    kind = rng.randrange(4)
    expert = env.expert_actions()
    if kind == 0:
        return ""
    if kind == 1 or not expert:
        return env.format_response(env.random_actions(rng))
    return env.format_response(expert)
