"""Episodes as an expert would play them, with faults that are not learned, or that are."""

import itertools
import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from rltune_envs.arithmetic import ArithmeticEnv
from rltune_envs.base import TextEnv
from rltune_envs.multihop_qa.protocol import ANSWER, Action, parse_name
from rltune_envs.protocols import HasExpert, HasGoldResponse, HasRandomPlayer, require, supports

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
    search, or the first partial result of a sum, is given as the answer. `excluded` holds the
    content hashes of the held-out tasks. An environment without an expert shows its gold responses,
    without faults.

    Raises:
        ProtocolError: An environment has neither.

    """
    rng = random.Random(seed)
    seeds = itertools.count(_DEMONSTRATIONS + (seed << 40))
    for task_seed, env in zip(seeds, itertools.cycle(envs), strict=False):
        if env.task(task_seed).content_hash not in excluded:
            yield demonstrate(env, task_seed, rng, noise=noise, haste=haste)


def demonstrate(
    env: TextEnv, task_seed: int, rng: random.Random, *, noise: float, haste: float
) -> tuple[DemonstratedTurn, ...]:
    """Return the turns of the task of a seed; see `demonstrations`.

    Raises:
        ProtocolError: The environment has neither an expert nor gold responses.

    """
    observation = env.system_prompt + env.reset(seed=task_seed)
    prefix = env.response_prefix
    turns: list[DemonstratedTurn] = []
    while (answered := _answered(env, rng, noise=noise, haste=haste)) is not None:
        response, is_expert = answered
        turns.append(
            DemonstratedTurn(observation + prefix, response.removeprefix(prefix), is_expert)
        )
        step = env.step(response)
        if step.has_ended:
            break
        observation = step.observation
    return tuple(turns)


def _answered(
    env: TextEnv, rng: random.Random, *, noise: float, haste: float
) -> tuple[str, bool] | None:
    """Return a response, and whether to learn it; None where nothing right is left to say."""
    if not supports(env, HasExpert):
        gold = require(env, HasGoldResponse).gold_response()
        return None if gold is None else (env.response_prefix + gold.texts[0], True)
    actions = env.expert_actions()
    if actions is None:
        return None
    is_expert = rng.random() >= noise
    if not is_expert:
        actions = require(env, HasRandomPlayer).random_actions(rng)
    elif haste and rng.random() < haste:
        actions = _hasty(env, actions)
    return env.format_response(actions), is_expert


def _hasty(env: TextEnv, actions: Sequence[str]) -> tuple[str, ...]:
    """Return the answer of a player who stops too early."""
    if isinstance(env, ArithmeticEnv):
        return tuple(actions[:1])
    return tuple(Action(ANSWER, parse_name(action).text).name for action in actions)
