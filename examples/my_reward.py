"""A custom reward. In a config: `reward: examples.my_reward:score`."""

from rltune_envs.rewards import Attempt


def score(attempt: Attempt) -> float:
    """Return 1 for paying with the fewest coins, less for each coin more, 0 for not paying."""
    return attempt.task.difficulty / len(attempt.turns) if attempt.success else 0.0
