"""Sums: how they are drawn, shown, answered and graded."""

import random

import pytest
from cases import each

from rltune_envs.arithmetic import ArithmeticEnv
from rltune_envs.arithmetic.sums import Sum, draw_sum
from rltune_envs.base import FailureClass, GoldResponse

TERMS = (3, 4, 5)


@pytest.fixture
def env():
    """A compact environment at the sum 7+5-4."""
    env = ArithmeticEnv(prompt="compact")
    env.reset(seed=0)
    env._sum = Sum((7, 5, -4))
    return env


def test_a_sum_by_hand():
    one = Sum((7, 5, -4))
    assert one.results == (12, 8)  # 7 + 5, then 12 - 4
    assert (one.spelt(), one.spelt(blank=" ")) == ("7+5-4", "7 + 5 - 4")
    assert one.unordered == Sum((5, 7, -4)).unordered != Sum((7, 4, -5)).unordered


def test_drawn_sums_keep_to_their_limits_and_never_go_below_0():
    sums = [draw_sum(seed, TERMS, 9) for seed in range(300)]
    assert {len(one.terms) for one in sums} == set(TERMS)
    assert {abs(term) for one in sums for term in one.terms} == set(range(1, 10))
    assert all(one.terms[0] > 0 and min(one.results) >= 0 for one in sums)
    signs = [term > 0 for one in sums for term in one.terms[1:]]
    assert 0.5 < sum(signs) / len(signs) < 0.75  # half, and where a minus would lead below 0
    assert min(result for one in sums for result in one.results) == 0
    assert draw_sum(1, TERMS, 9) != draw_sum(1, TERMS, 8)


@pytest.mark.parametrize(
    ("response", "reward", "actions"),
    [
        (r"12,\boxed{8}", 1.0, ("12", "8")),
        (r"\boxed{8}", 1.0, ("8",)),
        (r"12,13,14,\boxed{8}", 1.0, ("12", "13", "14", "8")),  # the box counts, not the way
        (r"First 7 + 5 = 12, then 12 - 4 = 8. So \boxed{8}.", 1.0, ("8",)),
        (r"\boxed{9}, no, \boxed{8.0}", 1.0, ("8.0",)),
        (r"12,\boxed{12}", 0.0, ("12", "12")),
        (r"8,\boxed{8}8", 1.0, ("8",)),
        (r"\boxed{eight}", 0.0, ("eight",)),
    ],
)
def test_the_last_box_is_the_answer(env, response, reward, actions):
    step = env.step(response)
    assert (step.reward, step.success, step.actions) == (reward, reward == 1, actions)
    assert (step.is_valid, step.terminated, step.truncated) == (True, True, False)
    assert step.failure_class is (FailureClass.NONE if reward else FailureClass.WRONG)


@pytest.mark.parametrize("response", ["", "8", r"12,\boxed{8", r"boxed{8}"])
def test_a_response_without_a_whole_box_is_malformed(env, response):
    step = env.step(response)
    assert (step.reward, step.success, step.actions) == (-0.1, False, ())
    assert (step.is_valid, step.n_invalid, step.truncated) == (False, 1, True)
    assert step.failure_class is FailureClass.MALFORMED


@pytest.mark.parametrize("response", [r"\fbox{8}", r"\boxed {8}", r"1,\fbox{8}"])
def test_a_box_in_another_spelling_is_an_answer(env, response):
    step = env.step(response)
    assert (step.success, step.actions) == (True, ("8",))


def test_the_order_of_the_numbers_of_terms_is_no_matter():
    one, other = ArithmeticEnv(terms=[3, 5]), ArithmeticEnv(terms=[5, 3])
    assert [one.task(seed) for seed in range(9)] == [other.task(seed) for seed in range(9)]


def test_a_step_after_the_end_earns_nothing(env):
    env.step(r"\boxed{8}")
    again = env.step(r"\boxed{9}")
    assert (again.reward, again.success, again.actions) == (0.0, True, ())
    assert env.expert_actions() is env.gold_response() is None


def test_what_is_right_to_say(env):
    assert env.expert_actions() == ("12", "8")
    assert env.format_response(("12", "8")) == r"12,\boxed{8}"
    assert env.gold_response() == GoldResponse("12,\\boxed{", ("8",), "}")
    assert env.gold(5)["answers"] == [str(draw_sum(5, TERMS, 9).results[-1])]


def test_a_guess_is_right_once_in_all_results_that_there_may_be():
    env = ArithmeticEnv(terms=[2], largest=2)
    assert env.random_success_probability(0) == 1 / 5  # 0 to 4
    rng = random.Random(0)
    assert {env.random_actions(rng) for _ in range(99)} == {(str(n),) for n in range(5)}


def test_both_prompts_show_one_sum():
    compact, natural = ArithmeticEnv(prompt="compact"), ArithmeticEnv()
    shown, text = compact.reset(seed=3), natural.reset(seed=3)
    instruction, sum_ = text.splitlines()
    assert sum_.replace(" ", "") == shown == draw_sum(3, TERMS, 9).spelt() + "="
    assert r"\boxed{}" in instruction
    assert compact.task(3) == natural.task(3)
    assert compact.task(3).difficulty == len(draw_sum(3, TERMS, 9).terms)


def test_sums_of_the_same_terms_in_another_order_are_near():
    env = ArithmeticEnv(terms=[2], largest=2)
    tasks = {env._sum_of(seed).spelt(): env.task(seed) for seed in range(60)}
    assert tasks["1+2"].near_hash == tasks["2+1"].near_hash != tasks["2-1"].near_hash
    assert tasks["1+2"].content_hash != tasks["2+1"].content_hash


@each(
    ("arguments", "message"),
    [
        ({"terms": []}, r"^terms is \[\]; give one or more different numbers$"),
        ({"terms": [3, 3]}, r"^terms is \[3, 3\]; give one or more different numbers$"),
        ({"terms": [1]}, r"^terms: 1 is too small; give 2 or more$"),
        ({"terms": [65]}, r"^terms is \[65\]; give at most 64$"),
        ({"largest": 0}, r"^largest: 0 is too small; give 1 or more$"),
        ({"largest": 10**10}, r"^largest is 10000000000; give at most 1000000000$"),
        ({"format_penalty": 0.5}, r"^format_penalty is 0.5; give 0 or a negative number$"),
        ({"prompt": "short"}, r"^prompt is 'short'; choose one of natural, compact\.$"),
    ],
)
def test_arguments_out_of_their_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ArithmeticEnv(**arguments)
