"""Sums of whole numbers, worked out in steps and graded by their boxed result."""

from rltune_envs.arithmetic.env import ArithmeticEnv

__all__ = ["ArithmeticEnv"]
