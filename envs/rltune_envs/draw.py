"""Draw the tasks of all splits: from one stream of seeds, or from the environment's own parts."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice

from rltune_envs.base import Task, TextEnv
from rltune_envs.errors import GenerationError
from rltune_envs.faults import retry
from rltune_envs.protocols import HasEvalSets, HasParts, HasRepeatedRows, require, supports
from rltune_envs.streams import stream

PARTS = ("train", "heldout", "test")
"""Splits of the tasks, in the order in which manifests have them."""

_STREAM = 1 << 40  # seeds of one split_seed; far more than any split draws
MAX_SPLIT_SEED = (1 << 23) - 1  # so that every task seed lies below 2**63
_SCALE = 1 << 32  # values of the part of a digest that decides
MAX_DUPLICATES = 10_000  # in a row, after which the environment counts as exhausted


def draw(
    env: TextEnv, wanted: Mapping[str, int], split_seed: int
) -> tuple[dict[str, tuple[Task, ...]], int]:
    """Return the parts in the order of `wanted`, and the number of duplicates left out.

    Args:
        env: Makes the tasks.
        wanted: Part -> number of its tasks.
        split_seed: Names the stream of seeds, or the choice among the tasks of a part.

    Raises:
        GenerationError: The environment does not have that many different tasks.

    """
    seen, skipped = set[str](), list[int]()
    if supports(env, HasParts):
        chosen = _choose(env, wanted, split_seed, seen, skipped)
        n_rows = retry(env.repeated_rows) if supports(env, HasRepeatedRows) else 0
        return chosen, len(skipped) + n_rows
    first_seed = split_seed * _STREAM
    distinct = _distinct(env, count(first_seed), seen, skipped)
    offsets = require(env, HasEvalSets).eval_sets() if supports(env, HasEvalSets) else {}
    sets = {
        name: _distinct(env, count(first_seed + offset), seen, skipped)
        for name, offset in offsets.items()
    }
    parts = {
        part: _from_sets(sets, n, part) if sets and part != "train" else tuple(islice(distinct, n))
        for part, n in wanted.items()
    }
    if len(seen) < sum(wanted.values()):
        asked = ", ".join(f"{part}_tasks={n}" for part, n in wanted.items())
        raise GenerationError(
            f"the environment has {len(seen)} different tasks ({MAX_DUPLICATES} in a row had been "
            f"drawn before), but {asked} need {sum(wanted.values())}; lower some of them (in a "
            "config: gate.tasks, env.train_tasks, gate.test_tasks), or give the environment more"
        )
    return parts, len(skipped)


def _choose(
    env: TextEnv, wanted: Mapping[str, int], split_seed: int, seen: set[str], skipped: list[int]
) -> dict[str, tuple[Task, ...]]:
    """Return tasks of an environment with parts of its own, held out as many as wanted.

    Of the others at most as many are taken, and at least one for training.
    """
    parts: dict[str, tuple[Task, ...]] = {}
    own = require(env, HasParts)
    for part, n in wanted.items():
        seeds = list(retry(partial(own.part_seeds, part)))
        stream(f"splits/{split_seed}/{part}").shuffle(seeds)
        parts[part] = tuple(islice(_distinct(env, seeds, seen, skipped), n))
        if len(parts[part]) < {"heldout": n, "train": min(n, 1), "test": 0}[part]:
            raise GenerationError(_too_few(part, len(parts[part]), n))
    return parts


def _too_few(part: str, n: int, wanted: int) -> str:
    if part == "train":
        return "its train split has no task; give rows, or lower the shares of heldout and test"
    return (
        f"its {part} split has {n} tasks, but gate.tasks is {wanted}; lower it, or give more rows: "
        "by env.heldout_share, or in a file env.heldout"
    )


def _from_sets(sets: Mapping[str, Iterator[Task]], n: int, part: str) -> tuple[Task, ...]:
    """Draw `n` tasks from the sets, as evenly as possible; the first ones give one more."""
    if 0 < n < len(sets):
        raise GenerationError(
            f"{part}_tasks={n} leaves no task for some of the {len(sets)} sets of env.eval; give "
            f"at least {len(sets)}"
        )
    drawn: list[Task] = []
    for number, (name, tasks) in enumerate(sets.items()):
        share = n // len(sets) + (number < n % len(sets))
        mine = tuple(islice(tasks, share))
        if len(mine) < share:
            raise GenerationError(
                f"the set {name!r} of env.eval has only {len(mine)} tasks left for {part}, but "
                f"{part}_tasks={n} over {len(sets)} sets need {share} of each; lower it (in a "
                "config: gate.tasks, gate.test_tasks)"
            )
        drawn += mine
    return tuple(drawn)


def _distinct(
    env: TextEnv, seeds: Iterable[int], seen: set[str], skipped: list[int]
) -> Iterator[Task]:
    """Yield tasks with contents that are not in `seen`, until too many in a row are.

    The seeds of the others are added to `skipped`.
    """
    n_duplicates = 0
    for seed in seeds:
        task = retry(partial(env.task, seed))
        if task.content_hash not in seen:
            seen.add(task.content_hash)
            n_duplicates = 0
            yield task
            continue
        skipped.append(seed)
        if (n_duplicates := n_duplicates + 1) == MAX_DUPLICATES:
            return


def part_of(digest: str, shares: Iterable[tuple[str, float]]) -> str:
    """Return the part to which a task of a file belongs, by its content alone.

    Args:
        digest: Hex digest of the content.
        shares: Part -> share of the contents that it gets; the rest is for training.

    """
    place = int(digest[-8:], 16) / _SCALE
    for part, share in shares:
        if place < share:
            return part
        place -= share
    return "train"
