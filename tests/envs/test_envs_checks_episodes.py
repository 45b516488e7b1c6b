"""The contract checker names the clause that a broken episode breaks."""

import random
import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from rltune_envs.base import FailureClass
from rltune_envs.checks import check_env
from rltune_envs.errors import ContractError
from tests.coin_env import CoinEnv


def is_over(step):
    return step is not None and (step.terminated or step.truncated)


class NeverEnds(CoinEnv):
    def step(self, response):
        self.turns, self.left = 0, 40
        return super().step(response)


class OwnsNoSeed(CoinEnv):
    def reset(self, *, seed):
        super().reset(seed=seed)
        self.left = random.Random().randrange(1, 41)
        return f"Pay {self.left}"


class ResetForgets(CoinEnv):
    turns = 0

    def reset(self, *, seed):
        turns = self.turns
        observation = super().reset(seed=seed)
        self.turns = turns if turns < 4 else 0
        return observation


class MovesGlobalState(CoinEnv):
    def reset(self, *, seed):
        random.seed(seed)
        return super().reset(seed=seed)


class MovesNumpyState(CoinEnv):
    def reset(self, *, seed):
        np.random.seed(seed % 2**32)
        return super().reset(seed=seed)


class ReadsNumpyState(CoinEnv):
    def reset(self, *, seed):
        return super().reset(seed=seed) + str(np.random.get_state()[1][0])


class ReadsGlobalState(CoinEnv):
    """Looks at the global state without moving it."""

    def reset(self, *, seed):
        return super().reset(seed=seed) + str(hash(random.getstate()))


class OneTillForAll(CoinEnv):
    """Two environments of one thread share what is left; with one till for all threads, the
    clause about threads would sometimes be the first to see it."""

    till = threading.local()

    @property
    def left(self):
        return self.till.left

    @left.setter
    def left(self, value):
        self.till.left = value


class SeesOtherThreads(CoinEnv):
    """Behaves in one thread; in several, the episode depends on which."""

    def reset(self, *, seed):
        observation = super().reset(seed=seed)
        time.sleep(0.002)
        is_main = threading.current_thread() is threading.main_thread()
        return observation if is_main else observation + threading.current_thread().name


class TaskMovesTheEpisode(CoinEnv):
    def task(self, seed):
        self.left = self._amount(seed)
        return super().task(seed)


class GoldMovesTheEpisode(CoinEnv):
    def gold(self, seed):
        self.left = self._amount(seed)
        return {}


class FloorMovesTheEpisode(CoinEnv):
    def random_success_probability(self, seed):
        self.left = self._amount(seed)
        return super().random_success_probability(seed)


class CeilingMovesTheEpisode(CoinEnv):
    def optimal_success_probability(self, seed):
        self.left = self._amount(seed)
        return super().optimal_success_probability(seed)


class TaskDiffersByInstance(CoinEnv):
    def task(self, seed):
        return replace(super().task(seed), task_id=f"pay-{id(self)}")


class GoldDiffersByInstance(CoinEnv):
    def gold(self, seed):
        return {"answer": id(self)}


class TaskRemembersTheEpisode(CoinEnv):
    turns = 0

    def task(self, seed):
        return replace(super().task(seed), facts={"turns": self.turns})


def after_end(**changes):
    """Make an environment that says something else once it is over."""

    class Changed(CoinEnv):
        def step(self, response):
            was_over = is_over(self.last)
            step = super().step(response)
            return replace(step, **changes) if was_over else step

    return Changed


class MovesAfterTheEnd(CoinEnv):
    def step(self, response):
        was_over = is_over(self.last)
        step = super().step(response)
        self.left += 7 * was_over
        return step


EPISODES = [  # (environment, the clause that its error names)
    (NeverEnds, "every episode ends"),
    (OwnsNoSeed, "threads do not change an episode"),
    (SeesOtherThreads, "threads do not change an episode"),
    (ResetForgets, "reset(seed) decides the episode"),
    (MovesGlobalState, "global random state is left alone"),
    (MovesNumpyState, "global random state is left alone"),
    (ReadsNumpyState, "reset(seed) is the only randomness"),
    (ReadsGlobalState, "reset(seed) is the only randomness"),
    (OneTillForAll, "environments share no state"),
    (TaskMovesTheEpisode, "asking about a task leaves the episode alone"),
    (GoldMovesTheEpisode, "asking about a task leaves the episode alone"),
    (FloorMovesTheEpisode, "asking about a task leaves the episode alone"),
    (CeilingMovesTheEpisode, "asking about a task leaves the episode alone"),
    (TaskDiffersByInstance, "task(seed) is a function of the seed"),
    (GoldDiffersByInstance, "task(seed) is a function of the seed"),
    (TaskRemembersTheEpisode, "task(seed) is a function of the seed"),
    (after_end(reward=1.0), "a step after the end earns nothing"),
    (after_end(observation="x"), "a step after the end changes nothing"),
    (after_end(auxiliary={}), "a step after the end changes nothing"),
    (after_end(failure_class=FailureClass.WRONG), "a step after the end changes nothing"),
    (after_end(actions=("One",)), "a step after the end changes nothing"),
    (
        after_end(terminated=False, truncated=False, success=False),
        "a step after the end changes nothing",
    ),
    (MovesAfterTheEnd, "a step after the end changes nothing"),
]


@pytest.mark.parametrize(
    ("env", "clause"), EPISODES, ids=[f"{env.__name__}-{i}" for i, (env, _) in enumerate(EPISODES)]
)
def test_a_broken_environment_is_named(env, clause):
    with pytest.raises(ContractError, match=rf"^{re.escape(clause)}: with seed \d+, "):
        check_env(env, seeds=range(64), max_turns=50)


def test_a_wild_generator_is_found_in_a_single_thread_too():
    with pytest.raises(ContractError, match=r"^(threads|reset)"):
        check_env(OwnsNoSeed, seeds=range(2), threads=1)
