"""The faults that a measurement may have: one rule for gates, training steps and measured floors.

A failure outside the policy (of a service, of custom code) says nothing about the policy, so its
episodes count nowhere. But failures are seldom random: a verifier may fail on wrong answers alone,
and the rate over the other episodes is then of no use.
"""

from collections.abc import Callable
from typing import TypeVar

from rltune_envs.errors import CustomCodeError, HungCodeError

T = TypeVar("T")

FAULT_SHARE = 0.25
"""A measurement with a larger share of faulty episodes is discarded."""

MAX_LOST_STEPS = 3
"""A trial ends after so many training steps in a row above that share."""

TRIES = 3
"""Attempts at what must succeed once: drawing a task, proving it by the expert."""


def too_many_faults(n_faults: int, n_episodes: int) -> bool:
    """Return whether so many episodes had a fault that the others prove nothing."""
    return n_faults > FAULT_SHARE * n_episodes


def retry(ask: Callable[[], T]) -> T:
    """Call again where custom code failed: a service may hiccup. Code that hangs is not retried.

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
