"""The worked example of a custom environment and reward: it is small, valid and usable."""

from pathlib import Path

import pytest

from examples import my_env
from examples.my_env import MyEnv
from rltune_envs.checks import check_env
from rltune_envs.errors import GenerationError
from rltune_envs.imports import load_object
from rltune_envs.rewards import Rubric, Term, find_score
from rltune_envs.splits import build_manifest, report
from rltune_envs.verified import VerifiedEnv

COINS = Rubric((Term("coins", 1.0, find_score("examples.my_reward:score")),))


def answer(name):
    return f"<answer>{name}</answer>"


def env_that_asks_for(amount):
    env = MyEnv()
    seed = next(seed for seed in range(1000) if env.task(seed).task_id == f"pay-{amount}")
    return env, seed


def test_it_is_found_by_its_import_path():
    assert load_object("examples.my_env:MyEnv") is MyEnv


def test_it_keeps_the_contract_alone_and_under_its_reward():
    check_env(MyEnv, seeds=range(64))
    check_env(lambda: VerifiedEnv(MyEnv(), COINS), seeds=range(32))


def test_it_is_short():
    assert len(Path(my_env.__file__).read_text().splitlines()) <= 100


def test_an_episode_by_hand():
    env, seed = env_that_asks_for(7)

    assert env.reset(seed=seed) == "Pay 7"
    assert env.task(seed).difficulty == 2  # 5 + 2
    assert env.step(answer("Five")).observation == "Pay 2"
    last = env.step(answer("Two"))
    assert (last.success, last.reward, last.auxiliary) == (True, 1.0, {"left": 0.0})


def test_the_floor_by_hand():
    # 2 is paid by Two (1/3), or by One and then One (1/3 x 1/3).
    env, seed = env_that_asks_for(2)

    assert env.random_success_probability(seed) == pytest.approx(4 / 9)


@pytest.mark.parametrize(
    ("coins", "reward", "success"),
    [
        (("Five", "Two"), 1.0, True),
        (("Five", "One", "One"), 2 / 3, False),  # 2 coins would do; 3 were given
        (("Five", "Five"), 0.0, False),
        (("Five", "Ten", "Two"), 1.0, True),  # what cannot be read is no coin
    ],
)
def test_the_reward_by_hand(coins, reward, success):
    inner, seed = env_that_asks_for(7)
    env = VerifiedEnv(inner, COINS)
    env.reset(seed=seed)
    steps = [env.step(answer(coin)) for coin in coins]

    assert steps[-1].reward == pytest.approx(reward)
    assert steps[-1].success is success


def test_it_has_splits_and_forty_tasks():
    env = VerifiedEnv(MyEnv(), COINS)
    tasks = {"train_tasks": 20, "heldout_tasks": 10, "test_tasks": 10}
    manifest = build_manifest(env, split_seed=0, **tasks)

    assert report(manifest)["test"]["n"] == 10
    assert 0 < manifest.heldout_floor.rate < 0.2 < manifest.heldout_ceiling == 1.0
    with pytest.raises(GenerationError, match=r"^the environment has 40 different tasks"):
        build_manifest(env, split_seed=0, **(tasks | {"train_tasks": 21}))
