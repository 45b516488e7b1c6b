"""Episodes as an expert would play them, with faults that are not learned, or that are."""

import itertools
import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from rltune_envs.base import TextEnv
from rltune_envs.multihop_qa.protocol import ANSWER, Action, parse_name
from rltune_envs.protocols import HasExpert, HasRandomPlayer, require

_DEMONSTRATIONS = 1 << 60  # task seeds far from those of any split


@dataclass(frozen=True, slots=True)
class DemonstratedTurn:
    """One turn of a demonstration: what is read, what is answered, and whether to learn it."""

    prompt: str
    response: str
    is_expert: bool


def demonstrations(
    envs: Sequence[TextEnv], *, seed: int, excluded: Set[str], noise: float, haste: float = 0.0
) -> Iterator[tuple[DemonstratedTurn, ...]]:
    """Yield endless demonstrations on fresh tasks, played in the environments in turn.

    A turn is answered at random with probability `noise` and then not learned: the next turns show
    how to go on from a place that a shortest solution never visits. With probability `haste` a
    search is given as the answer. `excluded` holds the content hashes of the held-out tasks.
    """
    rng = random.Random(seed)
    seeds = itertools.count(_DEMONSTRATIONS + (seed << 40))
    for task_seed, env in zip(seeds, itertools.cycle(envs), strict=False):
        if env.task(task_seed).content_hash not in excluded:
            yield _demonstration(env, task_seed, rng, noise=noise, haste=haste)


def _demonstration(
    env: TextEnv, task_seed: int, rng: random.Random, *, noise: float, haste: float
) -> tuple[DemonstratedTurn, ...]:
    expert = require(env, HasExpert)
    observation = env.system_prompt + env.reset(seed=task_seed)
    turns: list[DemonstratedTurn] = []
    while (actions := expert.expert_actions()) is not None:
        is_expert = rng.random() >= noise
        if not is_expert:
            actions = require(env, HasRandomPlayer).random_actions(rng)
        elif haste and rng.random() < haste:
            actions = tuple(_hasty(action) for action in actions)
        response = expert.format_response(actions)
        prefix = env.response_prefix
        turns.append(
            DemonstratedTurn(observation + prefix, response.removeprefix(prefix), is_expert)
        )
        step = env.step(response)
        if step.has_ended:
            break
        observation = step.observation
    return tuple(turns)


def _hasty(action: str) -> str:
    """Return a search as an answer, and an answer as it is."""
    return Action(ANSWER, parse_name(action).text).name
