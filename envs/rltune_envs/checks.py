"""One checker for the contract of `base.TextEnv`, to run over every environment.

It plays whole episodes with a fixed mixture of expert, random and empty responses and compares
the results. For a custom environment:

    check_env(lambda: MyEnv(size=6), seeds=range(64))

The clauses are in `record_checks` (types and fields), `episode_checks` (what may change an
episode), `response_checks` (bad and well-formed responses), `skill_checks` (the expert, the random
player, and their exact odds) and `insight_checks` (the distance to go, and gold responses).
"""

from collections.abc import Callable, Sequence

from rltune_envs.base import TextEnv
from rltune_envs.check_player import Player
from rltune_envs.episode_checks import (
    check_end,
    check_global_random_state,
    check_instances,
    check_names,
    check_noise,
    check_records,
    check_reset,
    check_task,
    check_threads,
)
from rltune_envs.insight_checks import check_insight
from rltune_envs.response_checks import check_bad_responses, check_format, check_shortest
from rltune_envs.skill_checks import check_expert, check_odds

_CHECKS = (
    check_records,
    check_reset,
    check_global_random_state,
    check_instances,
    check_task,
    check_end,
    check_bad_responses,
    check_format,
    check_shortest,
    check_expert,
    check_insight,
)


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
    player = Player(make_env, max_turns)
    # Threads come first, before anything that the environment may cache is there.
    check_threads(player, seeds, threads)
    for seed, other in zip(seeds, (*seeds[1:], seeds[0]), strict=True):
        for check in _CHECKS:
            check(player, seed, other)
    check_names(make_env(), seeds)
    check_noise(player, seeds)
    check_odds(player, seeds)
