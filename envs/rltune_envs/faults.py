"""How many faults a measurement may have: one rule for gates, training steps and measured floors.

What failed outside the policy (a service, a user's own code) says nothing about the policy, so its
episodes count nowhere. But what fails seldom fails at random: a verifier may fail on wrong answers
alone, and the rate over the others is then of no use.
"""

from collections.abc import Callable
from typing import TypeVar

from rltune_envs.errors import CustomCodeError, HungCodeError

T = TypeVar("T")

FAULT_SHARE = 0.25
"""Share of episodes with a fault above which a measurement counts for nothing."""

MOST_LOST_STEPS = 3
"""Training steps in a row over that share, with which a trial ends."""

TRIES = 3
"""Tries of what must succeed once: a task that is drawn, an expert that proves it."""


def is_lost(n_faults: int, n_asked: int) -> bool:
    """Tell whether so many of the episodes had a fault that the others prove nothing."""
    return n_faults > FAULT_SHARE * n_asked


def persist(ask: Callable[[], T]) -> T:
    """Ask again where code of a user's failed: a service may hiccup. One that hangs is not asked.

    Raises:
        CustomCodeError: It failed each time, or hung.

    """
    for _ in range(TRIES - 1):
        try:
            return ask()
        except HungCodeError:
            raise
        except CustomCodeError:
            continue
    return ask()
