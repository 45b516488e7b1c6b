"""One checker for the contract of `base.TextEnv`, to run over every environment.

It plays whole episodes with a fixed mixture of expert, random and empty responses and compares
the results. For a custom environment:

    check_env(lambda: MyEnv(size=6), seeds=range(64))

The clauses are in `record_checks` (types and fields), `episode_checks` (what may change an
episode), `response_checks` (bad and well-formed responses), `skill_checks` (the expert, the random
player, and their exact odds) and `insight_checks` (the distance to go, and gold responses). Those
about an optional protocol (`protocols`) are checked where the environment has it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rltune_envs.base import TextEnv
from rltune_envs.check_player import Player
from rltune_envs.episode_checks import (
    check_end,
    check_global_random_state,
    check_instances,
    check_names,
    check_noise,
    check_parts,
    check_records,
    check_reset,
    check_task,
    check_threads,
)
from rltune_envs.insight_checks import check_insight
from rltune_envs.protocols import (
    HasCeiling,
    HasDistance,
    HasExpert,
    HasFloor,
    HasGoldResponse,
    HasParts,
    HasRandomPlayer,
    HasShortestResponses,
    supports,
)
from rltune_envs.response_checks import check_bad_responses, check_format, check_shortest
from rltune_envs.skill_checks import check_ceiling, check_expert, check_floor

_Needs = tuple[tuple[type, ...], ...]
_NOTHING: _Needs = ((),)

_OF_A_SEED: Mapping[Callable[[Player, int, int], None], _Needs] = {
    check_records: _NOTHING,
    check_reset: _NOTHING,
    check_global_random_state: _NOTHING,
    check_instances: _NOTHING,
    check_task: _NOTHING,
    check_end: _NOTHING,
    check_bad_responses: _NOTHING,
    check_format: ((HasRandomPlayer,),),
    check_shortest: ((HasShortestResponses,),),
    check_expert: ((HasExpert,),),
    check_insight: ((HasDistance,), (HasGoldResponse,)),
}
"""Check of one seed, given another one too -> the protocols that it needs: one of these sets."""

_OF_ALL_SEEDS: Mapping[Callable[[Player, Sequence[int]], None], _Needs] = {
    check_names: _NOTHING,
    check_noise: _NOTHING,
    check_floor: ((HasFloor, HasRandomPlayer),),
    check_ceiling: ((HasCeiling, HasExpert),),
    check_parts: ((HasParts,),),
}


@dataclass(frozen=True, slots=True)
class Checked:
    """What was proved of an environment.

    Attributes:
        checked: Names of the parts of the contract that it keeps.
        skipped: Name of a part -> the protocols that it needs, which the environment does not have.

    """

    checked: tuple[str, ...]
    skipped: Mapping[str, tuple[str, ...]]


def check_env(
    make_env: Callable[[], TextEnv],
    *,
    seeds: Sequence[int],
    threads: int = 8,
    max_turns: int = 1000,
) -> Checked:
    """Check every clause of the contract on every seed, as far as the environment has protocols.

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
    player = Player(make_env, max_turns, threads)
    # Threads come first, before anything that the environment may cache is there.
    check_threads(player, seeds)
    env = make_env()
    of_a_seed = [check for check, needs in _OF_A_SEED.items() if _has(env, needs)]
    for seed, other in zip(seeds, (*seeds[1:], seeds[0]), strict=True):
        for check in of_a_seed:
            check(player, seed, other)
    for check_all, needs in _OF_ALL_SEEDS.items():
        if _has(env, needs):
            check_all(player, seeds)
    return _checked(env)


def _has(env: TextEnv, needs: _Needs) -> bool:
    return any(all(supports(env, protocol) for protocol in one) for one in needs)


def _checked(env: TextEnv) -> Checked:
    tables = ({check_threads: _NOTHING}, _OF_A_SEED, _OF_ALL_SEEDS)
    clauses = [item for table in tables for item in table.items()]
    names = {check.__name__.removeprefix("check_"): needs for check, needs in clauses}
    lacking = {name: needs for name, needs in names.items() if not _has(env, needs)}
    return Checked(
        tuple(name for name in names if name not in lacking),
        {name: _names(env, needs) for name, needs in lacking.items()},
    )


def _names(env: TextEnv, needs: _Needs) -> tuple[str, ...]:
    flat = [protocol for one in needs for protocol in one]
    return tuple(protocol.__name__ for protocol in flat if not supports(env, protocol))
