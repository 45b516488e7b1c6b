"""From a config to its environment and its frozen tasks. Environments are imported when asked for.

Relative paths in a config, and custom modules, refer to the folder that the driver was called in;
it is handed over as `base`.
"""

import sys
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Any

from rltune.errors import InputError, Problem
from rltune.spec.schema.env import (
    ArithmeticConfig,
    CustomEnvConfig,
    Env,
    FrozenLakeConfig,
    MultihopQaConfig,
    SokobanConfig,
)
from rltune.spec.schema.env_base import TasksConfig
from rltune.spec.schema.env_verified import VerifiedConfig
from rltune.spec.schema.reward import RewardConfig
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.custom_env import naming_custom_env
from rltune_envs.base import TextEnv
from rltune_envs.errors import EnvError, TaskError
from rltune_envs.faults import retry
from rltune_envs.guarded import guarded_env, guarded_score
from rltune_envs.imports import load_object
from rltune_envs.rewards import Rubric, Score, Term, find_score
from rltune_envs.splits import Manifest, build_manifest, require_same_files
from rltune_envs.verified import VerifiedEnv

ENVS = {
    "sokoban": "rltune_envs.sokoban:SokobanEnv",
    "frozen_lake": "rltune_envs.frozen_lake:FrozenLakeEnv",
    "multihop_qa": "rltune_envs.multihop_qa:MultihopQaEnv",
    "arithmetic": "rltune_envs.arithmetic:ArithmeticEnv",
    "verified": "rltune_envs.verified_task:VerifiedTaskEnv",
}
"""Kind of env -> its class, whose keywords are the keys of the env section."""

FILE_KEYS = ("levels", "questions", "corpus", "train", "heldout", "test")
NOT_FILES = ("own", "all")  # values of env.corpus that name no file

_OURS = {"kind", "train_tasks", "split_seed"}  # keys that the class does not get


def env_maker(
    env: Env, reward: RewardConfig | None = None, base: Path = Path()
) -> Callable[[], TextEnv]:
    """Return a function that makes fresh environments of a config.

    Without a reward section the environment decides about reward and success.

    Raises:
        ImportPathError: An import path names nothing that can be used.
        ValueError: There is no score of a name.

    """
    make = _plain_maker(env, base)
    return make if reward is None else _verified_maker(make, reward, base)


def _plain_maker(env: Env, base: Path) -> Callable[[], TextEnv]:
    if isinstance(env, CustomEnvConfig):
        add_to_path(base)
        return partial(guarded_env, load_object(env.factory), env.factory, env.arguments)
    factory, arguments = load_object(ENVS[env.kind]), env.model_dump(exclude=_OURS)
    for key, path in files_of(env, base).items():
        section, _, name = key.partition(".")
        if name:
            arguments[section][name]["file"] = str(path)
        else:
            arguments[key] = str(path)
    if isinstance(env, VerifiedConfig):
        arguments["verifier"] = env.verifier.options()
        if env.verifier.is_custom:
            add_to_path(base)
        return _sharing_rows(partial(factory, **arguments))
    return lambda: factory(**arguments)


def _sharing_rows(make: Callable[[], TextEnv]) -> Callable[[], TextEnv]:
    """Return a function that makes environments with the rows that the first one reads.

    A trial goes on with these when someone writes to the file meanwhile.
    """
    first = cache(make)
    return lambda: copy(first())


def _verified_maker(
    make: Callable[[], TextEnv], reward: RewardConfig, base: Path
) -> Callable[[], TextEnv]:
    if any(":" in term.score for term in reward.terms):
        add_to_path(base)
    measures = retry(make).auxiliary_names
    rubric = Rubric(
        tuple(Term(term.name, term.weight, _score(term.score, measures)) for term in reward.terms),
        threshold=reward.threshold,
    )
    return lambda: VerifiedEnv(
        make(), rubric, turn_rewards=reward.turn_rewards, format_penalty=reward.format_penalty
    )


def _score(name: str, measures: tuple[str, ...]) -> Score:
    """Return a score by its name; one of a user's is guarded."""
    score = find_score(name, auxiliary_names=measures)
    return guarded_score(score, name) if ":" in name else score


def workers_of(config: TrialConfig) -> int:
    """Return how many environments of a config play at a time.

    One where none waits for a service or runs custom code: threads slow down what only computes.
    """
    scores = () if config.reward is None else tuple(term.score for term in config.reward.terms)
    is_alone = _only_computes(config.env) and not any(":" in score for score in scores)
    return 1 if is_alone else config.rollout.workers


def _only_computes(env: Env) -> bool:
    if isinstance(env, MultihopQaConfig):
        return env.retriever == "bm25"
    return isinstance(env, SokobanConfig | FrozenLakeConfig | ArithmeticConfig)


def files_of(env: TasksConfig, base: Path) -> dict[str, Path]:
    """Return the keys of an env section that name a file -> the file; a set is `eval.NAME`."""
    sets = env.eval if isinstance(env, MultihopQaConfig) else {}
    given: dict[str, Any] = {key: getattr(env, key, None) for key in FILE_KEYS}
    return {
        key: base / value
        for key, value in given.items()
        if value is not None and not (key == "corpus" and value in NOT_FILES)
    } | {f"eval.{name}": base / one.file for name, one in sets.items()}


def add_to_path(base: Path) -> None:
    """Make modules in a folder importable, as `python -m` does for the working folder."""
    folder = str(base.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def freeze_tasks(config: TrialConfig, base: Path = Path()) -> Manifest:
    """Draw the splits of a config; the same for every seed of a sweep.

    Where environments wait, `rollout.workers` of them prove the tasks at a time.
    """
    make = env_maker(config.env, config.reward, base)
    workers = min(workers_of(config), config.gate.tasks)
    return build_manifest(
        make(),
        train_tasks=config.env.train_tasks,
        heldout_tasks=config.gate.tasks,
        test_tasks=config.gate.test_tasks,
        split_seed=config.env.split_seed,
        others=[make() for _ in range(workers - 1)],
    )


def require_tasks(config: TrialConfig, base: Path = Path()) -> Manifest:
    """Return the splits of a config, as `freeze_tasks` does.

    Raises:
        InputError: They cannot be drawn, or their gold solutions do not solve them.

    """
    try:
        with naming_custom_env(config.env):
            return freeze_tasks(config, base)
    except (EnvError, ValueError) as error:
        what = f"its tasks cannot be frozen: {str(error).rstrip('.')}."
        raise InputError(Problem(f"env {config.env.kind}", what)) from error


def require_same_rows(make_env: Callable[[], TextEnv], manifest: Manifest) -> None:
    """Refuse to play when the rows of a file are not those that the tasks were frozen from.

    Raises:
        InputError: It names the file.

    """
    if not manifest.files:
        return
    try:
        require_same_files(retry(make_env), manifest)
    except TaskError as error:
        raise InputError(Problem("env", f"{error}.")) from error
