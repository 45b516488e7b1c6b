"""An environment under a rubric: rewards by hand, failures, faults, and the policy's own text."""

import itertools
import math
import re
from dataclasses import replace

import pytest
from cases import each

from rltune_envs.base import FailureClass
from rltune_envs.bounds import EPISODES, Floor, FloorKind, ceiling_of, floor_of
from rltune_envs.checks import check_env
from rltune_envs.errors import TaskError
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.rewards import Rubric, Term, find_score
from rltune_envs.verified import VerifiedEnv
from tests.coin_env import CoinEnv

FIVE, TWO, ONE = (f"<answer>{name}</answer>" for name in ("Five", "Two", "One"))


class Wallet(CoinEnv):
    """Each coin costs 0.1, so that there are rewards in every turn; 7 is the only amount."""

    def _amount(self, seed):
        return 7

    def step(self, response):
        step = super().step(response)
        return replace(step, reward=step.reward - 0.1 * len(step.actions))

    def gold(self, seed):
        return {"coins": ["Five", "Two"]}


def rubric(**weights):
    terms = (
        Term(name, weight, find_score(name, auxiliary_names=("left",)))
        for name, weight in weights.items()
    )
    return Rubric(tuple(terms))


def by(score, *, threshold=1.0):
    return Rubric((Term("mine", 1.0, score),), threshold)


def play(env, *responses, seed=0):
    env.reset(seed=seed)
    return [env.step(response) for response in responses]


TURNS = (ONE, "junk", FIVE, ONE)  # 1 + 5 + 1 = 7; the environment itself pays -0.1, 0, -0.1, 0.9
REWARDS = [  # (turn_rewards, format_penalty, rewards by hand)
    ("none", 0.0, [0.0, 0.0, 0.0, 2.0]),  # success, weight 2
    ("env", 0.0, [-0.1, 0.0, -0.1, 2.0]),  # the last reward is the rubric's, not 0.9
    ("none", -0.5, [0.0, -0.5, 0.0, 2.0]),
    ("env", -0.5, [-0.1, -0.5, -0.1, 2.0]),
]


@pytest.mark.parametrize(("turn_rewards", "penalty", "rewards"), REWARDS)
def test_rewards_by_hand(turn_rewards, penalty, rewards):
    judge = rubric(success=2.0)
    env = VerifiedEnv(Wallet(), judge, turn_rewards=turn_rewards, format_penalty=penalty)

    assert [step.reward for step in play(env, *TURNS)] == pytest.approx(rewards)


def test_the_last_turn_pays_the_format_penalty_too():
    env = VerifiedEnv(Wallet(), rubric(success=1.0, valid_turns=1.0), format_penalty=-0.25)
    last = play(env, *["junk"] * 10)[-1]

    assert (last.reward, last.failure_class) == (-0.25, FailureClass.MALFORMED)


def test_a_score_sees_the_whole_attempt():
    seen = []
    env = VerifiedEnv(Wallet(), by(lambda attempt: seen.append(attempt) or 0.0))
    play(env, *TURNS, seed=3)

    (attempt,) = seen  # judged once, at the end
    assert attempt.responses == TURNS
    assert [t.observation for t in attempt.turns] == ["Pay 7", "Pay 6", "Pay 6", "Pay 1"]
    assert [t.actions for t in attempt.turns] == [("One",), (), ("Five",), ("One",)]
    assert [t.is_valid for t in attempt.turns] == [True, False, True, True]
    assert [t.reward for t in attempt.turns] == pytest.approx([-0.1, 0, -0.1, 0.9])
    assert attempt.reward == pytest.approx(0.7)
    assert attempt.success
    assert attempt.task == Wallet().task(3)
    assert attempt.auxiliary == {"left": 0.0}
    assert attempt.gold == {"coins": ["Five", "Two"]}


def test_an_attempt_starts_anew_with_every_episode():
    lengths = []
    env = VerifiedEnv(Wallet(), by(lambda attempt: lengths.append(len(attempt.turns)) or 1.0))
    play(env, ONE, ONE)
    play(env, FIVE, TWO)

    assert lengths == [2]


def test_measures_are_the_environments_and_one_per_term():
    env = VerifiedEnv(Wallet(), rubric(success=1.0, valid_turns=0.0))
    first, last = play(env, FIVE, TWO)

    assert env.auxiliary_names == ("left", "success", "valid_turns")
    assert first.auxiliary == {}
    assert last.auxiliary == {"left": 0.0, "success": 1.0, "valid_turns": 1.0}


def test_a_measure_of_the_environment_can_be_the_reward():
    env = VerifiedEnv(Wallet(), rubric(left=-1.0))
    last = play(env, FIVE, FIVE)[-1]  # 7 - 10

    assert env.auxiliary_names == ("left",)
    assert (last.reward, last.auxiliary) == (3.0, {"left": -3.0})


OUTCOMES = [  # (responses, score, success, class, terminated)
    ((FIVE, TWO), 1.0, True, FailureClass.NONE, True),
    ((FIVE, TWO), 0.5, False, FailureClass.WRONG, True),  # paid, but the verifier refuses
    ((FIVE, FIVE), 0.5, False, FailureClass.LOST, True),
    ((FIVE, FIVE), 1.0, True, FailureClass.NONE, True),  # lost, but the verifier accepts
    ((*["x"] * 9, ONE), 0.5, False, FailureClass.UNFINISHED, False),
    ((*["x"] * 10,), 0.5, False, FailureClass.MALFORMED, False),
    ((*["x"] * 10,), 1.0, True, FailureClass.NONE, True),  # success ends a task, at the limit too
]


@each(("responses", "score", "success", "kind", "terminated"), OUTCOMES)
def test_how_an_episode_ends(responses, score, success, kind, terminated):
    last = play(VerifiedEnv(Wallet(), by(lambda attempt: score)), *responses)[-1]

    assert (last.success, last.failure_class) == (success, kind)
    assert (last.terminated, last.truncated) == (terminated, not terminated)


def fail(attempt):
    raise ConnectionError("the judge\nis down")


def test_a_score_that_fails_is_a_fault_not_a_zero():
    env = VerifiedEnv(Wallet(), by(fail), turn_rewards="env", format_penalty=-0.5)
    *_, before, last = play(env, FIVE, TWO)

    assert before.fault == ""
    assert last.fault == "verifier mine: it raised ConnectionError: the judge is down"
    assert (last.failure_class, last.success, last.reward) == (FailureClass.FAULT, False, 0.0)
    assert last.auxiliary == {"left": 0.0, "mine": 0.0}
    assert last.terminated


class Unplugged(Wallet):
    """The till fails in the first turn, and works again."""

    def step(self, response):
        step = super().step(response)
        return replace(step, fault="till is down") if self.turns == 1 else step


def test_after_a_fault_of_the_environment_nothing_is_scored():
    judged = []
    env = VerifiedEnv(Unplugged(), by(lambda attempt: judged.append(attempt) or 1.0))
    first, last = play(env, FIVE, TWO)

    assert (first.fault, last.fault) == ("till is down", "")
    assert (last.failure_class, last.success, last.reward) == (FailureClass.FAULT, False, 0.0)
    assert last.auxiliary == {"left": 0.0, "mine": 0.0}
    assert not judged
    assert play(env, FIVE, TWO)[0].fault  # a new episode counts its own faults


class Tells(CoinEnv):
    """Shows the answer in every observation, as a search result does."""

    def step(self, response):
        step = super().step(response)
        return replace(step, observation="<information><answer>Paris</answer></information>")


def says_paris(attempt):
    return float(any("<answer>Paris</answer>" in response for response in attempt.responses))


def test_what_the_policy_only_read_scores_nothing():  # cases.md C8, E1
    env = VerifiedEnv(Tells(), by(says_paris))

    assert play(env, *["hm"] * 10)[-1].reward == 0.0
    # One tag is enough: there is no other text that it could be confused with.
    assert play(env, *["hm"] * 9, "<answer>Paris</answer>")[-1].reward == 1.0


def test_a_step_after_the_end_repeats_the_verdict():
    judged = []
    env = VerifiedEnv(Wallet(), by(lambda attempt: judged.append(1) or 1.0))
    last = play(env, FIVE, TWO)[-1]

    assert env.step(FIVE) == env.step("") == replace(last, reward=0.0, actions=())
    assert judged == [1]


def test_everything_else_is_the_environments():
    inner, env = Wallet(), VerifiedEnv(Wallet(), rubric(success=1.0))

    assert env.reset(seed=4) == inner.reset(seed=4)
    assert env.system_prompt == inner.system_prompt
    assert env.response_prefix == inner.response_prefix == "<answer>"
    assert env.task(4) == inner.task(4)
    assert env.gold(4) == inner.gold(4) != {}
    assert env.format_response(["One"]) == ONE
    assert env.expert_actions() == ("Five",)
    assert env.optimal_success_probability(4) == 1.0
    assert (env.is_deterministic, env.difficulty_unit) == (True, "actions")


class Weeks(Wallet):
    is_deterministic = False
    difficulty_unit = "weeks"


def test_luck_and_unit_are_the_environments():
    env = VerifiedEnv(Weeks(), rubric(success=1.0))

    assert (env.is_deterministic, env.difficulty_unit) == (False, "weeks")


def tasks_of(env, seeds):
    return [env.task(seed) for seed in seeds]


def test_the_floor_is_exact_where_success_is_the_environments():
    env = VerifiedEnv(CoinEnv(), rubric(success=1.0, valid_turns=1.0))
    floor = floor_of(env, tasks_of(env, [3]))

    assert floor == Floor(FloorKind.EXACT, CoinEnv().random_success_probability(3))


def test_any_other_floor_is_measured():
    # A random player is never malformed, so that all its turns are valid.
    env = VerifiedEnv(CoinEnv(), rubric(valid_turns=1.0))
    assert floor_of(env, tasks_of(env, [3])) == Floor(FloorKind.MEASURED, 1.0, EPISODES, EPISODES)
    # The same success under another name: 32 episodes for each of 50 tasks, within 4 sigma.
    env = VerifiedEnv(CoinEnv(), by(lambda attempt: float(attempt.success)))
    tasks = tasks_of(env, range(50))
    exact = [CoinEnv().random_success_probability(task.seed) for task in tasks]
    measured = floor_of(env, tasks)
    sigma = (sum(p * (1 - p) for p in exact) * EPISODES) ** 0.5
    assert measured.n == 50 * EPISODES
    assert measured.rate == measured.successes / measured.n
    assert abs(measured.successes - EPISODES * sum(exact)) < 4 * sigma
    assert measured == floor_of(env, tasks)


def test_another_success_has_a_ceiling_only_where_an_expert_proves_it():
    class Unplayed(CoinEnv):
        expert_actions = None

    class Windy(CoinEnv):
        is_deterministic = False

    for rules, has_ceiling in ((rubric(success=1.0), True), (rubric(valid_turns=1.0), False)):
        for kind in (Unplayed, Windy):
            env = VerifiedEnv(kind(), rules)
            assert (ceiling_of(env, tasks_of(env, [3])) == 1.0) is has_ceiling
    env = VerifiedEnv(CoinEnv(), rubric(valid_turns=1.0))
    assert ceiling_of(env, tasks_of(env, [3])) == 1.0


@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_a_threshold_that_is_not_the_environments_success_is_measured(threshold):
    judge = Rubric((Term("success", 1.0, find_score("success")),), threshold)
    floor = floor_of(env := VerifiedEnv(CoinEnv(), judge), tasks_of(env, [0]))

    assert (floor.kind, floor.rate) == (FloorKind.MEASURED, float(threshold == 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"turn_rewards": "all"}, "turn_rewards is 'all'; choose one of none, env."),
        ({"format_penalty": 0.1}, "format_penalty is 0.1; give 0 or a negative number"),
        ({"format_penalty": math.nan}, "format_penalty is nan; give 0 or a negative number"),
        (
            {"format_penalty": -float("inf")},
            "format_penalty is -inf; give 0 or a negative number",
        ),
    ],
)
def test_wrong_arguments(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        VerifiedEnv(CoinEnv(), rubric(success=1.0), **changes)


RUBRICS = {
    "success": rubric(success=1.0, valid_turns=0.1),
    "own": by(lambda attempt: attempt.success and attempt.task.difficulty / len(attempt.turns)),
}


@pytest.mark.parametrize("name", ["success", "own"])
@pytest.mark.parametrize("turn_rewards", ["none", "env"])
def test_it_keeps_the_contract(name, turn_rewards):
    check_env(
        lambda: VerifiedEnv(
            CoinEnv(), RUBRICS[name], turn_rewards=turn_rewards, format_penalty=-0.1
        ),
        seeds=range(40),
    )


@pytest.mark.parametrize(("every", "is_refused"), [(8, False), (2, True)])
def test_a_measured_floor_leaves_faults_out_and_is_refused_over_a_quarter(every, is_refused):
    """Case K11: a verifier that fails on wrong answers."""
    counter = itertools.count(1)

    def mine(attempt):
        if next(counter) % every == 0:
            raise ConnectionError("down")
        return 1.0

    env = VerifiedEnv(FrozenLakeEnv(), Rubric((Term("mine", 1.0, mine),)))
    if not is_refused:
        floor = floor_of(env, tasks_of(env, [3]))
        assert floor == Floor(FloorKind.MEASURED, 1.0, 28, 28)  # a fault is no failure
        return
    with pytest.raises(TaskError, match=r"^16 of 32 random episodes of the task of seed 3 had a "):
        floor_of(env, tasks_of(env, [3]))
