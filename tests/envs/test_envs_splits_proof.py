"""Every task proves itself: its gold solution earns full marks, or its name is in the error."""

import itertools
import json
import re
from dataclasses import replace

import pytest

from rltune_envs.base import GoldResponse
from rltune_envs.bounds import Floor, FloorKind
from rltune_envs.errors import CustomCodeError, TaskError
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.guarded import guarded_env
from rltune_envs.rewards import Rubric, Term
from rltune_envs.splits import Manifest, Proof, build_manifest, validate
from rltune_envs.verified import VerifiedEnv
from tests.bare_env import BareEnv
from tests.coin_env import COINS, CoinEnv

SIZES = {"train_tasks": 5, "heldout_tasks": 5, "test_tasks": 5, "split_seed": 0}


def under(score, env_class=CoinEnv):
    return VerifiedEnv(env_class(), Rubric((Term("mine", 1.0, score),)))


SPLITS = build_manifest(CoinEnv(), **SIZES)


@pytest.mark.parametrize("part", ["heldout", "test"])
def test_a_verifier_that_refuses_one_gold_solution_is_found_before_training(part):
    refused = getattr(SPLITS, part)[3]
    message = (
        f"{refused.task_id} (seed {refused.seed}): its own gold solution does not earn full marks: "
        "it ended as 'wrong', left 0, mine 0. Repair the task or its verifier"
    )
    with pytest.raises(TaskError, match=f"^{re.escape(message)}$"):
        build_manifest(under(lambda attempt: attempt.task.task_id != refused.task_id), **SIZES)


def test_nearly_full_marks_are_not_full():
    with pytest.raises(TaskError, match=r"it ended as 'wrong', left 0, mine 0\.99\. Repair"):
        build_manifest(under(lambda attempt: 0.99), **SIZES)


def test_a_verifier_that_fails_is_named():
    with pytest.raises(TaskError, match=r"marks: verifier mine: it raised ZeroDivision.*\. Repair"):
        build_manifest(under(lambda attempt: 1 / 0), **SIZES)


def test_a_machine_that_failed_on_the_way_is_named():
    class Unplugged(CoinEnv):
        def step(self, response):
            step = super().step(response)
            return replace(step, success=False, fault="till is down" if self.turns == 1 else "")

    with pytest.raises(TaskError, match=r"full marks: till is down\. Repair"):
        build_manifest(Unplugged(), **SIZES)


@pytest.mark.parametrize("gives_up_at", [{1}, set(range(41))], ids=["late", "at-once"])
def test_an_expert_that_gives_up_is_named(gives_up_at):
    class Tired(CoinEnv):
        def expert_actions(self):
            return None if self.left in gives_up_at else super().expert_actions()

    with pytest.raises(TaskError, match=r"^pay-\d+ \(seed \d+\): .*: the expert gave up\. Repair"):
        build_manifest(Tired(), **SIZES)


class Refuses(CoinEnv):
    """Never pays out."""

    def step(self, response):
        return replace(super().step(response), success=False)


def test_the_first_task_that_fails_is_named():
    for part in ("heldout", "test"):
        tasks = getattr(SPLITS, part)
        with pytest.raises(TaskError, match=rf"^{tasks[0].task_id} "):
            validate(Refuses(), tasks)


class SaysWhat(CoinEnv):
    """Knows the right coin, and no player."""

    expert_actions = None
    right = None

    def gold_response(self):
        coin = self.right or next(
            name for name in ("Five", "Two", "One") if COINS[name] <= self.left
        )
        return GoldResponse("", (coin,), "</answer>")


def test_without_an_expert_the_gold_response_proves_tasks():
    assert validate(SaysWhat(), SPLITS.heldout) is Proof.GOLD_RESPONSE

    class Errs(SaysWhat):
        right = "One"

    with pytest.raises(TaskError, match=r"marks: it ended as 'unfinished', left \d+\. Repair"):
        validate(Errs(max_amount=40), [CoinEnv().task(seed) for seed in range(40)])


def test_without_any_gold_solution_nothing_is_played():
    class Silent(CoinEnv):
        expert_actions = None

        def step(self, response):
            raise AssertionError

    assert validate(Silent(), SPLITS.heldout) is Proof.NONE


def test_a_manifest_of_a_bare_environment_says_what_is_unknown():
    made = build_manifest(BareEnv(), **SIZES)
    assert made.proved is Proof.NONE
    assert (made.heldout_floor, made.heldout_ceiling) == (Floor(FloorKind.START), None)
    assert made.to_json()["report"]["heldout"]["difficulty"] == {}
    assert Manifest.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_what_only_luck_decides_is_left_out():
    class Lucky(Refuses):
        is_deterministic = False

    class Unsure(Refuses):
        def optimal_success_probability(self, seed):
            return 0.9

    assert validate(Lucky(), SPLITS.heldout) is Proof.NONE
    assert validate(Unsure(), SPLITS.heldout) is Proof.EXPERT


def test_a_task_too_long_for_an_episode_is_left_out():
    made = build_manifest(CoinEnv(max_amount=500), **SIZES)

    assert made.heldout_ceiling < 1


def test_a_valid_reward_proves_all_tasks():
    env = under(lambda attempt: attempt.task.difficulty / len(attempt.turns))

    assert build_manifest(env, **SIZES).heldout == SPLITS.heldout


def test_an_env_that_cannot_start_a_task_is_refused_whatever_its_luck():
    """Tasks that no expert can prove are reset once all the same."""
    calls = []

    class Lake(FrozenLakeEnv):
        def reset(self, *, seed):
            calls.append(seed)
            raise ConnectionError("no server")

    env = guarded_env(Lake, f"{__name__}:Lake", {"success_rate": 0.5})
    with pytest.raises(CustomCodeError, match=r"^env Lake.reset\(\): it raised ConnectionError"):
        build_manifest(env, train_tasks=2, heldout_tasks=2, test_tasks=0, split_seed=0)
    assert len(calls) == 3  # a service may hiccup


def test_a_hiccup_of_an_env_does_not_refuse_its_tasks():
    counter = itertools.count(1)

    class Lake(FrozenLakeEnv):
        def step(self, response):
            if next(counter) == 2:
                raise ConnectionError("once")
            return super().step(response)

    env = guarded_env(Lake, f"{__name__}:Lake", {})
    sizes = {"train_tasks": 2, "heldout_tasks": 2, "test_tasks": 0, "split_seed": 0}
    assert build_manifest(env, **sizes) == build_manifest(FrozenLakeEnv(), **sizes)
