"""FrozenLake: rules, generator, exact values and text environment, one file each."""

from rltune_envs.frozen_lake.env import FrozenLakeEnv
from rltune_envs.frozen_lake.rules import Lake

__all__ = ["FrozenLakeEnv", "Lake"]
