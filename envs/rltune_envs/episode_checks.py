"""The part of the contract about episodes: what may change one, and what may not."""

import pickle
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from rltune_envs.base import Step, TextEnv
from rltune_envs.check_player import Player, Transcript, expert_of, random_response
from rltune_envs.draw import PARTS
from rltune_envs.protocols import HasCeiling, HasFloor, HasGold, HasParts, require, supports
from rltune_envs.record_checks import (
    broken,
    require_episode,
    require_gold,
    require_probabilities,
    require_step,
    require_task,
    require_texts,
)

_NOISE_SEEDS = range(4)


def check_threads(player: Player, seeds: Sequence[int]) -> None:
    """Play all seeds at once in threads, then one after the other."""
    with ThreadPoolExecutor(player.threads) as pool:
        together = list(pool.map(player.play_alone, seeds))
    for seed, transcript in zip(seeds, together, strict=True):
        if transcript != player.play_alone(seed):
            detail = f"one of {player.threads} threads saw another episode than a single thread"
            raise broken("threads do not change an episode", seed, detail)


def check_records(player: Player, seed: int, other: int) -> None:
    """Check all records of one episode and its task."""
    env = player.make_env()
    require_texts(env, env.reset(seed=seed), seed)
    require_task(env.task(seed), seed)
    if supports(env, HasGold):
        require_gold(env.gold(seed), seed)
    require_probabilities(env, seed)
    require_episode(env, player.play(env, seed)[1], seed)


def check_reset(player: Player, seed: int, other: int) -> None:
    """Play the same seed twice in one environment and once in a fresh one."""
    clause = "reset(seed) decides the episode"
    env = player.make_env()
    first = player.play(env, seed)
    env.reset(seed=other)
    env.step(random_response(env, random.Random(seed)))
    if player.play(env, seed) != first:
        raise broken(clause, seed, "it went another way after a part of another episode")
    if player.play_alone(seed) != first:
        raise broken(clause, seed, "a fresh environment played another one")


def check_global_random_state(player: Player, seed: int, other: int) -> None:
    """Play under two states of the global generators: neither is moved, and neither matters."""
    episodes = []
    for state in (1, 2):
        with _global_random_state(state) as read:
            before = read()
            episodes.append(player.play_alone(seed))
            if before != read():
                detail = "an episode moved it; draw from a generator of your own"
                raise broken("global random state is left alone", seed, detail)
    if episodes[0] != episodes[1]:
        detail = "the state of a global generator changed the episode"
        raise broken("reset(seed) is the only randomness", seed, detail)


def check_noise(player: Player, seeds: Sequence[int]) -> None:
    """Play under several noise seeds: they decide the luck where there is any, and nothing else."""
    moved = False
    for seed in seeds:
        first, *others = (_play_with_noise(player, seed, noise) for noise in _NOISE_SEEDS)
        if any(known != first[0] for known, _ in others):
            raise broken("task(seed) is a function of the seed", seed, "noise_seed changed it")
        if _play_with_noise(player, seed, _NOISE_SEEDS[-1]) != others[-1]:
            detail = "the same noise_seed led to two episodes"
            raise broken("seed and noise_seed are the only randomness", seed, detail)
        moved |= any(transcript != first[1] for _, transcript in others)
    is_deterministic = player.make_env().is_deterministic
    if is_deterministic and moved:
        detail = "noise_seed changed an episode; set is_deterministic to False"
        raise broken("a deterministic environment has no luck", seeds[0], detail)
    if not is_deterministic and not moved:
        detail = (
            f"noise seeds 0 to {_NOISE_SEEDS[-1]} led to the same episodes on all {len(seeds)} "
            "seeds; draw the luck in reset from the seed and self.noise_seed together"
        )
        raise broken("a task that comes again has fresh luck", seeds[0], detail)


def _play_with_noise(
    player: Player, seed: int, noise_seed: int
) -> tuple[tuple[object, ...], Transcript]:
    """Return all facts about a task, and an episode of it."""
    env = player.make_env()
    env.noise_seed = noise_seed
    return _all_about(env, seed), player.play(env, seed)


@contextmanager
def _global_random_state(state: int) -> Iterator[Callable[[], tuple[object, ...]]]:
    """Seed Python's generator, and numpy's where loaded, and yield a reader; restore both."""
    numpy: Any = sys.modules.get("numpy")
    kept = random.getstate(), numpy and numpy.random.get_state()
    random.seed(state)
    if numpy:
        numpy.random.seed(state)
    try:
        yield lambda: (
            random.getstate(),
            numpy and pickle.dumps(numpy.random.get_state(legacy=False)),
        )
    finally:
        random.setstate(kept[0])
        if numpy:
            numpy.random.set_state(kept[1])


def check_instances(player: Player, seed: int, other: int) -> None:
    """Play two tasks turn by turn; each must go as if it were alone."""
    envs = {one: player.make_env() for one in (seed, other)}
    observations = [env.reset(seed=one) for one, env in envs.items()]
    turns = list(zip_longest(*(player.steps(env, one) for one, env in envs.items())))
    for index, one in enumerate(envs):
        steps = tuple(turn[index] for turn in turns if turn[index] is not None)
        if (observations[index], steps) != player.play_alone(one):
            detail = f"the episode changed while seeds {seed} and {other} took turns"
            raise broken("environments share no state", one, detail)


def check_task(player: Player, seed: int, other: int) -> None:
    """Ask about tasks in two environments, and in the middle of an episode."""
    env, fresh = player.make_env(), player.make_env()
    known, again = _all_about(env, seed), _all_about(fresh, seed)
    if known != again:
        detail = f"it is {known} in one environment, {again} in another"
        raise broken("task(seed) is a function of the seed", seed, detail)
    observation = env.reset(seed=seed)
    steps: list[Step] = []
    _all_about(env, other)
    for step in player.steps(env, seed):
        if not steps:
            _all_about(env, other)
        steps.append(step)
    if (observation, tuple(steps)) != player.play(fresh, seed):
        detail = "it went another way after task(), gold() and the two probabilities"
        raise broken("asking about a task leaves the episode alone", seed, detail)
    if _all_about(env, seed) != known:
        raise broken("task(seed) is a function of the seed", seed, "an episode changed it")


def _all_about(env: TextEnv, seed: int) -> tuple[object, ...]:
    return (
        env.task(seed),
        dict(env.gold(seed)) if supports(env, HasGold) else None,
        env.random_success_probability(seed) if supports(env, HasFloor) else None,
        env.optimal_success_probability(seed) if supports(env, HasCeiling) else None,
    )


def check_end(player: Player, seed: int, other: int) -> None:
    """Go on after the end: each further step repeats the last record, and earns nothing."""
    env = player.make_env()
    env.reset(seed=seed)
    good = random_response(env, random.Random(seed))
    last = player.play(env, seed)[1][-1]
    end = (_outcome(last), expert_of(env))
    for response in (good, ""):
        step = env.step(response)
        require_step(step, seed)
        if step.reward:
            detail = f"{response!r} earned {step.reward:g}"
            raise broken("a step after the end earns nothing", seed, detail)
        if (_outcome(step), expert_of(env)) != end or step.actions:
            raise broken(
                "a step after the end changes nothing", seed, f"{response!r} led to {step}"
            )


def _outcome(step: Step) -> tuple[object, ...]:
    flags = (step.terminated, step.truncated, step.success)
    return (step.observation, *flags, step.failure_class, dict(step.auxiliary))


def check_names(player: Player, seeds: Sequence[int]) -> None:
    """Check that tasks share a name, `near_hash` and difficulty where they share the content."""
    hash_of: dict[str, str] = {}
    first: dict[str, tuple[str, str, int | None]] = {}
    for task in map(player.make_env().task, seeds):
        known = hash_of.setdefault(task.task_id, task.content_hash)
        known_id, *known_rest = first.setdefault(
            task.content_hash, (task.task_id, task.near_hash, task.difficulty)
        )
        if known != task.content_hash or known_id != task.task_id:
            detail = f"{task.task_id!r} and {task.content_hash!r} do not go together"
            raise broken("task_id names the content", task.seed, detail)
        if known_rest != [task.near_hash, task.difficulty]:
            detail = (
                f"{task.task_id!r} has another near_hash or difficulty than with an earlier seed"
            )
            raise broken("equal tasks are near each other and equally hard", task.seed, detail)


def check_parts(player: Player, seeds: Sequence[int]) -> None:
    """Check that no task is in two parts, by its content."""
    env = player.make_env()
    parts = require(env, HasParts)
    first: dict[str, str] = {}
    for part in PARTS:
        for seed in parts.part_seeds(part):
            task = env.task(seed)
            if (known := first.setdefault(task.content_hash, part)) != part:
                detail = f"{task.task_id!r} of {part} is in {known}, too"
                raise broken("no task is in two parts", seed, detail)
