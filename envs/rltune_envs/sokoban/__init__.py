"""Sokoban: rules, exact solver, generator and text environment, one file each."""

from rltune_envs.sokoban.env import SokobanEnv
from rltune_envs.sokoban.rules import Level, State

__all__ = ["Level", "SokobanEnv", "State"]
