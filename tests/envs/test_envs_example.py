"""The worked example of a custom environment and reward: it is small, valid and usable."""

from pathlib import Path

import pytest
from cases import each

from examples import my_env, my_reward, my_verifier
from examples.my_env import MyEnv
from rltune_envs.bounds import Floor, FloorKind
from rltune_envs.checks import check_env
from rltune_envs.errors import GenerationError
from rltune_envs.imports import load_object
from rltune_envs.rewards import Rubric, Term, find_score
from rltune_envs.splits import Proof, build_manifest, report
from rltune_envs.verified import VerifiedEnv

COINS = Rubric((Term("coins", 1.0, find_score("examples.my_reward:score")),))
SEVEN = 6  # the seed whose amount is 7


def test_it_is_found_by_its_import_path():
    assert load_object("examples.my_env:MyEnv") is MyEnv


def test_it_keeps_the_contract_alone_and_under_its_reward():
    check_env(MyEnv, seeds=range(64))
    check_env(lambda: VerifiedEnv(MyEnv(), COINS), seeds=range(32))


@pytest.mark.parametrize(("module", "lines"), [(my_env, 40), (my_reward, 10), (my_verifier, 10)])
def test_it_is_short(module, lines):
    assert len(Path(module.__file__).read_text().splitlines()) < lines


def test_an_episode_by_hand():
    env = MyEnv()

    assert env.reset(seed=SEVEN) == "Pay 7"
    assert env.task(SEVEN).difficulty == 2  # 5 + 2
    assert env.step("Five").observation == "Pay 2"
    last = env.step("Two")
    assert (last.observation, last.success, last.reward) == ("Paid", True, 1.0)


@each("seed", range(12))
def test_the_difficulty_is_the_fewest_coins(seed):
    fewest = {0: 0}
    for amount in range(1, seed + 2):
        fewest[amount] = 1 + min(fewest[amount - coin] for coin in (1, 2, 5) if coin <= amount)
    assert MyEnv().task(seed).difficulty == fewest[seed + 1]


@pytest.mark.parametrize(
    ("coins", "reward", "success"),
    [
        (("Five", "Two"), 1.0, True),
        (("Five", "One", "One"), 2 / 3, False),  # 2 coins would do; 3 were given
        (("Five", "Five"), 0.0, False),
        (("Five", "Ten"), 0.0, False),
    ],
)
def test_the_reward_by_hand(coins, reward, success):
    env = VerifiedEnv(MyEnv(), COINS)
    env.reset(seed=SEVEN)
    steps = [env.step(coin) for coin in coins]

    assert steps[-1].reward == pytest.approx(reward)
    assert steps[-1].success is success


def test_it_has_splits_and_forty_tasks():
    env = VerifiedEnv(MyEnv(), COINS)
    tasks = {"train_tasks": 20, "heldout_tasks": 10, "test_tasks": 10}
    manifest = build_manifest(env, split_seed=0, **tasks)

    assert report(manifest)["test"]["n"] == 10
    assert (manifest.heldout_floor, manifest.heldout_ceiling) == (Floor(FloorKind.START), None)
    assert manifest.proved is Proof.NONE
    with pytest.raises(GenerationError, match=r"^the environment has 40 different tasks"):
        build_manifest(env, split_seed=0, **(tasks | {"train_tasks": 21}))
