"""One checker for the contract of `base.TextEnv`, to run over every environment.

It plays whole episodes with a fixed mixture of expert, random and empty responses and compares
what comes back. Bring your own environment and run

    check_env(lambda: MyEnv(size=6), seeds=range(64))
"""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from rltune_envs.base import Step, TextEnv
from rltune_envs.record_checks import broken, require_step, require_task, require_texts

NONSENSE = (  # holds no answer, so nothing may be executed
    "", " \n\t", "\x00", "<answer>", "</answer>", "<think>", "</think><answer>",
    "</answer><answer>", "｜｜", "🙂" * 500, "\ud800", "İ\u202eمرحبا", "||" * 500, "x" * 100_000,
    "<think>" * 14_000, "<think></think> " * 6_000,
)  # fmt: skip
FUZZ = (  # holds an answer that is empty, strange or only partly closed
    "<answer></answer>", "<answer>||</answer>", "<answer>\x00</answer>", "<answer>No such</answer>",
    "<think></think><answer>｜｜</answer>", "<think></think><answer>||||</answer><answer>",
    "<answer>" + "||" * 30_000 + "</answer>",
    "<think>" * 4_000 + "</think><answer>" * 4_000 + "</answer>",
)  # fmt: skip


def check_env(
    make_env: Callable[[], TextEnv],
    *,
    seeds: Sequence[int],
    threads: int = 8,
    max_turns: int = 1000,
) -> None:
    """Check every clause of the contract on every seed.

    Args:
        make_env: Makes a fresh environment, the same one each time.
        seeds: Tasks to play; 64 are a good number, and at least two are needed.
        threads: Threads that play at once in the clause about threads.
        max_turns: An episode that is longer is taken to never end.

    Raises:
        ContractError: The first broken clause, with the seed that shows it.
        ValueError: There are fewer than two seeds, or one is given twice.

    """
    if len(set(seeds)) < max(2, len(seeds)):
        raise ValueError(f"seeds are {list(seeds)!r}; give two or more different ones")
    player = _Player(make_env, max_turns)
    # Threads come first, before anything that the environment may cache is there.
    _check_threads(player, seeds, threads)
    for seed, other in zip(seeds, (*seeds[1:], seeds[0]), strict=True):
        for check in _CHECKS:
            check(player, seed, other)
    _check_names(make_env(), seeds)


Transcript = tuple[str, tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class _Player:
    """Makes environments and plays them; holds no state between calls."""

    make_env: Callable[[], TextEnv]
    max_turns: int

    def play(self, env: TextEnv, seed: int) -> Transcript:
        return env.reset(seed=seed), tuple(self.steps(env, seed))

    def play_alone(self, seed: int) -> Transcript:
        return self.play(self.make_env(), seed)

    def steps(self, env: TextEnv, seed: int) -> Iterator[Step]:
        """Go on with a running episode; the responses follow from seed and state alone."""
        rng = random.Random(seed)
        for _ in range(self.max_turns):
            step = env.step(_some_response(env, rng))
            yield step
            if step.terminated or step.truncated:
                return
        detail = f"it still runs after {self.max_turns} turns; truncate it at a limit"
        raise broken("every episode ends", seed, detail)


def _some_response(env: TextEnv, rng: random.Random) -> str:
    kind = rng.randrange(4)
    expert = env.expert_actions()
    if kind == 0:
        return ""
    if kind == 1 or not expert:
        return env.format_response([rng.choice(env.action_names) for _ in range(2)])
    return env.format_response(expert)


def _check_threads(player: _Player, seeds: Sequence[int], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        together = list(pool.map(player.play_alone, seeds))
    for seed, transcript in zip(seeds, together, strict=True):
        if transcript != player.play_alone(seed):
            detail = f"one of {threads} threads saw another episode than a single thread"
            raise broken("threads do not change an episode", seed, detail)


def _check_records(player: _Player, seed: int, other: int) -> None:
    env = player.make_env()
    require_texts(env, env.reset(seed=seed), seed)
    require_task(env.task(seed), seed)
    for step in player.steps(env, seed):
        require_step(step, seed)


def _check_reset(player: _Player, seed: int, other: int) -> None:
    clause = "reset(seed) decides the episode"
    env = player.make_env()
    first = player.play(env, seed)
    env.reset(seed=other)
    env.step(env.format_response(env.action_names[:1]))
    if player.play(env, seed) != first:
        raise broken(clause, seed, "it went another way after a part of another episode")
    if player.play_alone(seed) != first:
        raise broken(clause, seed, "a fresh environment played another one")


def _check_global_random_state(player: _Player, seed: int, other: int) -> None:
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


@contextmanager
def _global_random_state(state: int) -> Iterator[Callable[[], tuple[object, ...]]]:
    """Seed Python's generator, and numpy's where loaded, and yield a reader; restore both."""
    numpy: Any = sys.modules.get("numpy")
    kept = random.getstate(), numpy and numpy.random.get_state()
    random.seed(state)
    if numpy:
        numpy.random.seed(state)
    try:
        yield lambda: (random.getstate(), numpy and repr(numpy.random.get_state(legacy=False)))
    finally:
        random.setstate(kept[0])
        if numpy:
            numpy.random.set_state(kept[1])


def _check_instances(player: _Player, seed: int, other: int) -> None:
    """Play two tasks turn by turn; each must go as if it were alone."""
    envs = {one: player.make_env() for one in (seed, other)}
    observations = [env.reset(seed=one) for one, env in envs.items()]
    turns = list(zip_longest(*(player.steps(env, one) for one, env in envs.items())))
    for index, one in enumerate(envs):
        steps = tuple(turn[index] for turn in turns if turn[index] is not None)
        if (observations[index], steps) != player.play_alone(one):
            detail = f"the episode changed while seeds {seed} and {other} took turns"
            raise broken("environments share no state", one, detail)


def _check_task(player: _Player, seed: int, other: int) -> None:
    env, fresh = player.make_env(), player.make_env()
    if env.task(seed) != fresh.task(seed):
        detail = f"it is {env.task(seed)} in one environment, {fresh.task(seed)} in another"
        raise broken("task(seed) is a function of the seed", seed, detail)
    observation, steps = env.reset(seed=seed), []
    env.task(other), env.random_success_probability(other)
    for step in player.steps(env, seed):
        steps.append(step)
        env.task(other), env.random_success_probability(other)
    if (observation, tuple(steps)) != player.play(fresh, seed):
        detail = "it went another way after task() and random_success_probability()"
        raise broken("asking about a task leaves the episode alone", seed, detail)


def _check_end(player: _Player, seed: int, other: int) -> None:
    env = player.make_env()
    last = player.play(env, seed)[1][-1]
    end = (last.observation, last.terminated, last.truncated, last.success, env.expert_actions())
    for response in (env.format_response(env.expert_actions() or env.action_names[:1]), ""):
        step = env.step(response)
        require_step(step, seed)
        if step.reward:
            detail = f"{response!r} earned {step.reward:g}"
            raise broken("a step after the end earns nothing", seed, detail)
        now = (step.observation, step.terminated, step.truncated, step.success)
        if (*now, env.expert_actions()) != end or step.actions:
            raise broken(
                "a step after the end changes nothing", seed, f"{response!r} led to {step}"
            )


def _check_bad_responses(player: _Player, seed: int, other: int) -> None:
    env = player.make_env()
    name = env.action_names[0]
    half, many = env.format_response((name,))[:-1], env.format_response((name,) * 5_000)
    for response in (*NONSENSE, *FUZZ, half, many, f"{name}||" * 5_000):
        env.reset(seed=seed)
        expert = env.expert_actions()
        try:
            step = env.step(response)
        except Exception as error:
            detail = f"{response[:40]!r} raised {error!r}"
            raise broken("a bad response never raises", seed, detail) from error
        require_step(step, seed)
        is_idle = not (step.is_valid or step.actions or step.success)
        if response in NONSENSE and not (is_idle and env.expert_actions() == expert):
            raise broken(
                "a response without an answer is invalid and does nothing",
                seed,
                f"{response[:40]!r} led to {step}",
            )


def _check_expert(player: _Player, seed: int, other: int) -> None:
    env = player.make_env()
    env.reset(seed=seed)
    executed: list[str] = []
    for _ in range(player.max_turns):
        actions = env.expert_actions()
        if not actions:
            detail = f"it gave {actions!r} after {executed}"
            raise broken("the expert solves every task", seed, detail)
        step = env.step(env.format_response(actions))
        if step.actions != actions or not step.is_valid or step.n_over_limit:
            detail = f"the expert's {actions!r} became {step}"
            raise broken("format_response comes back from step", seed, detail)
        executed += step.actions
        if step.terminated or step.truncated:
            break
    if not step.success:
        detail = f"the episode ended without success after {executed}"
        raise broken("the expert solves every task", seed, detail)
    if len(executed) != env.task(seed).optimal_actions:
        detail = f"it needed {len(executed)}, not {env.task(seed).optimal_actions}"
        raise broken("the expert needs exactly optimal_actions", seed, detail)


def _check_format(player: _Player, seed: int, other: int) -> None:
    env = player.make_env()
    for name in env.action_names:
        env.reset(seed=seed)
        response = env.format_response((name,))
        if not response.startswith(env.response_prefix):
            detail = f"{response!r} does not start with {env.response_prefix!r}"
            raise broken("format_response starts with response_prefix", seed, detail)
        step = env.step(response)
        if step.actions != (name,) or not step.is_valid:
            raise broken("format_response comes back from step", seed, f"{name!r} became {step}")


def _check_names(env: TextEnv, seeds: Sequence[int]) -> None:
    """Two tasks have the same name exactly when they have the same content."""
    hash_of: dict[str, str] = {}
    name_of: dict[str, str] = {}
    for task in map(env.task, seeds):
        known_hash = hash_of.setdefault(task.task_id, task.content_hash)
        known_name = name_of.setdefault(task.content_hash, task.task_id)
        if known_hash != task.content_hash or known_name != task.task_id:
            detail = f"{task.task_id!r} and {task.content_hash!r} do not go together"
            raise broken("task_id names the content", task.seed, detail)


_CHECKS = (
    _check_records,
    _check_reset,
    _check_global_random_state,
    _check_instances,
    _check_task,
    _check_end,
    _check_bad_responses,
    _check_expert,
    _check_format,
)
