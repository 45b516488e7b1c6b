"""From a config to its environment and its frozen tasks."""

from collections.abc import Callable

from rltune.spec.schema import SokobanConfig, TrialConfig
from rltune_envs.base import TextEnv
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.splits import Manifest, build_manifest


def env_maker(config: SokobanConfig) -> Callable[[], TextEnv]:
    """Return a function that makes fresh environments of this config."""
    arguments = config.model_dump(exclude={"kind", "train_tasks", "split_seed"})
    return lambda: SokobanEnv(**arguments)


def freeze_tasks(config: TrialConfig) -> Manifest:
    """Draw the train and held-out splits of a config; the same for every seed of a sweep."""
    return build_manifest(
        env_maker(config.env)(),
        train_tasks=config.env.train_tasks,
        heldout_tasks=config.gate.tasks,
        split_seed=config.env.split_seed,
    )
