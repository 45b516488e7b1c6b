"""The contract checker passes honest environments, and says what it was given wrongly."""

import random
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rltune_envs.base import FailureClass
from rltune_envs.check_player import Player
from rltune_envs.checks import check_env
from rltune_envs.errors import ContractError
from rltune_envs.response_checks import FUZZ, NONSENSE
from rltune_envs.skill_checks import check_ceiling, check_floor
from tests.coin_env import CoinEnv


class Slippery(CoinEnv):
    """A named coin falls down with probability 1/4, and is then not paid."""

    is_deterministic = False
    luck = 3 / 4

    def reset(self, *, seed):
        observation = super().reset(seed=seed)
        self.rng = random.Random(f"slip {seed} {self.noise_seed}")
        self.holds = 3 / 4
        return observation

    def step(self, response):
        left, is_running = self.left, self.last is None or not self.is_over(self.last)
        step = super().step(response)
        if not is_running or not step.actions or self.rng.random() < self.holds:
            return step
        self.left = left
        failure = FailureClass.UNFINISHED if self.turns == 10 else FailureClass.NONE
        self.last = replace(
            step, observation=f"Pay {left}", reward=0.0, success=False, terminated=False,
            truncated=self.turns == 10, failure_class=failure,
            auxiliary={"left": float(left)} if self.turns == 10 else {},
        )  # fmt: skip
        return self.last

    def is_over(self, step):
        return step.terminated or step.truncated

    def expert_actions(self):
        # Fewest coins, because every coin needs the same luck.
        return super().expert_actions() if self.turns < 10 else None

    def random_success_probability(self, seed):
        return odds(self.task(seed), turns=10, luck=self.luck, coins=(1, 2, 5))

    def optimal_success_probability(self, seed):
        # P(at least n of 10 throws hold), by the chance of n "coins" of 1.
        needed = self.task(seed).difficulty
        return chance_to_pay(needed, 10, self.luck, (1,))


def odds(task, *, turns, luck, coins):
    return chance_to_pay(int(task.task_id.removeprefix("pay-")), turns, luck, coins)


@cache
def chance_to_pay(left, turns, luck, coins):
    if left <= 0 or turns == 0:
        return float(left == 0)
    held = sum(chance_to_pay(left - coin, turns - 1, luck, coins) for coin in coins) / len(coins)
    return luck * held + (1 - luck) * chance_to_pay(left, turns - 1, luck, coins)


class Broken(CoinEnv):
    """Honest about a machine that fails on amounts above 20: no success, and the fault named."""

    def step(self, response):
        step = super().step(response)
        if self.amount <= 20:
            return step
        is_over = step.terminated or step.truncated
        self.last = replace(
            step, fault="the till is down", reward=0.0, success=False,
            failure_class=FailureClass.FAULT if is_over else FailureClass.NONE,
        )  # fmt: skip
        return self.last

    def reset(self, *, seed):
        self.amount = self._amount(seed)
        return super().reset(seed=seed)

    def random_success_probability(self, seed):
        return super().random_success_probability(seed) * (self._amount(seed) <= 20)

    def optimal_success_probability(self, seed):
        return float(self._amount(seed) <= 20)


class NoPrefix(CoinEnv):
    """The policy itself opens the tag."""

    response_prefix = ""


@pytest.mark.parametrize("make_env", [CoinEnv, Slippery, Broken, NoPrefix])
def test_an_honest_environment_passes(make_env):
    check_env(make_env, seeds=range(16))


def test_a_task_that_no_episode_is_long_enough_for_is_allowed():
    # 60 needs 12 coins; only 10 can be given.
    env = CoinEnv(max_amount=60)
    assert {env.optimal_success_probability(seed) for seed in range(24)} == {0.0, 1.0}

    check_env(lambda: CoinEnv(max_amount=60), seeds=range(24))


def test_luck_by_hand():
    # One coin of 1, two throws that hold with 3/4: 1 - (1/4)^2.
    assert chance_to_pay(1, 2, 3 / 4, (1,)) == 15 / 16
    # Amount 2 in one throw, coins 1, 2, 5: it must be the 2, and hold.
    assert chance_to_pay(2, 1, 3 / 4, (1, 2, 5)) == pytest.approx(1 / 4)


class SlipsMoreOften(Slippery):
    luck = 0.95  # claimed; it is 3/4


class SlipsLessOften(Slippery):
    luck = 0.5


@pytest.mark.parametrize(
    "make_env", [SlipsMoreOften, pytest.param(SlipsLessOften, marks=pytest.mark.slow)]
)
def test_claimed_luck_must_agree_with_the_episodes(make_env):
    with pytest.raises(ContractError, match=r"_success_probability agrees with .* are due$"):
        check_env(make_env, seeds=range(64))


class AllOrNothing(Slippery):
    """Nothing but luck: on half of the seeds no coin holds, so that their episodes agree."""

    def reset(self, *, seed):
        observation = super().reset(seed=seed)
        self.holds = self.rng.randrange(2)
        return observation

    def random_actions(self, rng):
        return self.expert_actions() or ("One",)

    def random_success_probability(self, seed):
        return 0.5

    def optimal_success_probability(self, seed):
        return 0.5


class KnowsItsLuck(Slippery):
    """Its luck is a function of the task alone: who remembers a task knows it."""

    @property
    def noise_seed(self):
        return 0

    @noise_seed.setter
    def noise_seed(self, value):
        pass


class SecretLuck(CoinEnv):
    """Calls itself deterministic, and asks the noise seed whether it starts at all."""

    def step(self, response):
        return super().step("" if self.noise_seed == 3 else response)


class FreeLuck(Slippery):
    """Draws from an unseeded generator once the noise seed is not 0."""

    def reset(self, *, seed):
        observation = super().reset(seed=seed)
        if self.noise_seed:
            self.rng = random.Random()
        return observation


class OtherTask(Slippery):
    def task(self, seed):
        return replace(super().task(seed), facts={"noise": self.noise_seed})


@pytest.mark.parametrize(
    ("make_env", "message"),
    [
        (KnowsItsLuck, "a task that comes again has fresh luck"),
        (SecretLuck, "a deterministic environment has no luck"),
        (FreeLuck, "seed and noise_seed are the only randomness"),
        (OtherTask, r"task\(seed\) is a function of the seed"),
    ],
)
def test_the_noise_seed_decides_the_luck_and_nothing_else(make_env, message):
    with pytest.raises(ContractError, match=message):
        check_env(make_env, seeds=range(8))


@pytest.mark.parametrize("make_env", [Slippery, AllOrNothing])
def test_luck_within_four_sigmas_is_allowed(make_env):
    for start in range(1000, 1256, 64):  # four other sets of tasks
        for check in (check_floor, check_ceiling):
            check(Player(make_env, max_turns=10), range(start, start + 64))


def test_the_checker_leaves_global_random_state_alone():
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    check_env(CoinEnv, seeds=range(3))

    assert random.getstate() == state
    assert np.random.get_state()[1].tolist() == numpy_state


@pytest.mark.parametrize("seeds", [[], [3], [3, 3], [1, 2, 1]])
def test_seeds_must_be_different_ones(seeds):
    message = f"seeds are {seeds!r}; give two or more different ones"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_env(CoinEnv, seeds=seeds)


def test_bad_responses_cover_the_kinds_that_matter():
    bad = (*NONSENSE, *FUZZ)

    assert "" in bad
    assert any(len(text) >= 100_000 for text in bad)
    assert any(not text.isascii() for text in bad)
    assert any("\x00" in text for text in bad)
    assert any("<search>" in text for text in FUZZ)
    with pytest.raises(UnicodeEncodeError):
        "".join(bad).encode()


@pytest.mark.parametrize("tag", ["answer", "search"])
def test_nonsense_holds_no_complete_block(tag):
    for text in NONSENSE:
        assert f"</{tag}>" not in text.partition(f"<{tag}>")[2]
