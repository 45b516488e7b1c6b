"""A custom reward: any function from an `Attempt` to a number.

In a config: `reward: examples.my_reward:score`. The perfect player must earn full marks.
"""

from rltune_envs.rewards import Attempt


def score(attempt: Attempt) -> float:
    """Return 1 for paying with the fewest coins, less for each coin more, 0 for not paying."""
    n_coins = sum(len(turn.actions) for turn in attempt.turns)
    return attempt.task.difficulty / n_coins if attempt.success else 0.0
