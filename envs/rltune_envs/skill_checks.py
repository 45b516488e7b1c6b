"""The part of the contract about skill: the expert, the random player, and their exact odds."""

import math
import random
from collections.abc import Callable, Sequence
from functools import partial

from rltune_envs.base import TextEnv
from rltune_envs.check_player import Player
from rltune_envs.protocols import (
    HasCeiling,
    HasExpert,
    HasFloor,
    HasRandomPlayer,
    WritesActions,
    require,
    supports,
)
from rltune_envs.record_checks import broken
from rltune_envs.response_checks import require_understood

SIGMAS = 4.0  # a valid environment is further off once in 16,000 checks
_STREAMS = 8  # random episodes per seed


def check_expert(player: Player, seed: int, other: int) -> None:
    """Let the expert play; a task that is surely solvable must be solved, in the fewest actions."""
    env = player.make_env()
    executed, success = _play_expert(player, env, seed)
    if not env.is_deterministic:
        return
    if supports(env, HasCeiling) and env.optimal_success_probability(seed) < 1:
        return
    if not success:
        detail = f"the episode ended without success after {executed}"
        raise broken("the expert solves every task", seed, detail)
    difficulty = env.task(seed).difficulty
    if env.difficulty_unit == "actions" and difficulty not in (None, len(executed)):
        detail = f"it needed {len(executed)}, not {difficulty}"
        raise broken("the expert needs exactly the difficulty in actions", seed, detail)


def check_floor(player: Player, seeds: Sequence[int]) -> None:
    """Compare the exact floor with random episodes that are really played, over all seeds."""
    env = player.make_env()
    floor = require(env, HasFloor).random_success_probability
    _require_odds(
        "random_success_probability agrees with random play",
        seeds,
        [floor(seed) for seed in seeds],
        [[_play_random(player, env, seed, index) for index in range(_STREAMS)] for seed in seeds],
    )


def check_ceiling(player: Player, seeds: Sequence[int]) -> None:
    """Compare the exact ceiling with the expert, over several noise seeds where there is luck."""
    env = player.make_env()
    ceiling = require(env, HasCeiling).optimal_success_probability
    lucks = range(1 if env.is_deterministic else _STREAMS)
    _require_odds(
        "optimal_success_probability agrees with the expert",
        seeds,
        [ceiling(seed) for seed in seeds],
        [
            [_play_expert(player, env, seed, noise_seed)[1] for noise_seed in lucks]
            for seed in seeds
        ],
    )


def _require_odds(
    clause: str, seeds: Sequence[int], exact: Sequence[float], played: Sequence[Sequence[bool]]
) -> None:
    n_each = len(played[0])
    expected = n_each * sum(exact)
    sigma = math.sqrt(n_each * sum(p * (1 - p) for p in exact))
    # Few expected successes are Poisson rather than normal; one episode more covers that.
    tolerance = SIGMAS * sigma + (1 if sigma > 0 else 1e-6)
    n_successes = sum(map(sum, played))
    if abs(n_successes - expected) > tolerance:
        detail = (
            f"the first of {len(seeds)}, {n_successes} of {n_each * len(seeds)} episodes succeed; "
            f"{expected:.1f} +- {tolerance:.1f} are due"
        )
        raise broken(clause, seeds[0], detail)


def _play_random(player: Player, env: TextEnv, seed: int, stream: int) -> bool:
    rng = random.Random(seed * _STREAMS + stream)
    env.noise_seed = stream
    return _play(player, env, seed, partial(require(env, HasRandomPlayer).random_actions, rng))[1]


def _play_expert(
    player: Player, env: TextEnv, seed: int, noise_seed: int = 0
) -> tuple[list[str], bool]:
    env.noise_seed = noise_seed
    return _play(player, env, seed, require(env, HasExpert).expert_actions)


def _play(
    player: Player, env: TextEnv, seed: int, choose: Callable[[], tuple[str, ...] | None]
) -> tuple[list[str], bool]:
    """Return the executed actions and the success of one player, who may give up."""
    env.reset(seed=seed)
    executed: list[str] = []
    for _ in range(player.max_turns):
        if not (actions := choose()):
            return executed, False
        step = env.step(require(env, WritesActions).format_response(actions))
        require_understood(step, actions, seed)
        executed += step.actions
        if step.has_ended:
            return executed, step.success
    raise player.endless(seed)
