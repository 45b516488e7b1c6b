import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.maxrl import maxrl

CASES = [  # (rewards of one group, advantages)
    # MATHS 4: .75 / .250001 and -.25 / .250001
    pytest.param([1, 0, 0, 0], [2.999988, -0.999996, -0.999996, -0.999996], id="one-of-four"),
    pytest.param([1, 1], [0, 0], id="all-solved"),
    pytest.param([0, 0], [0, 0], id="none-solved"),
    # mean 2/3: 1/3 / (2/3) = .5 and -1
    pytest.param([1, 1, 0], [0.5, 0.5, -1], id="two-of-three"),
    # mean 2: +-1 / 2
    pytest.param([1, 3], [-0.5, 0.5], id="not-binary"),
    pytest.param([1], [0], id="singleton"),
    pytest.param([0], [0], id="singleton-unsolved"),
]


def one_group(rewards):
    return torch.tensor(rewards, dtype=torch.float64), torch.zeros(len(rewards), dtype=torch.int64)


@pytest.mark.parametrize(("rewards", "want"), CASES)
def test_by_hand(rewards, want):
    assert maxrl(*one_group(rewards)).tolist() == pytest.approx(want, abs=2e-6)


def test_golden_to_the_last_printed_digit():
    assert maxrl(*one_group([1, 0, 0, 0])).tolist() == pytest.approx(
        [2.999988, -0.999996, -0.999996, -0.999996], abs=5e-7
    )


def test_eps_is_added_to_the_mean_and_is_the_floor():
    # mean .5, eps .25: +-.5 / .75
    assert maxrl(*one_group([1, 0]), eps=0.25).tolist() == pytest.approx([2 / 3, -2 / 3])
    assert maxrl(*one_group([1, 0]), eps=0.5).tolist() == [0, 0]  # at the floor
    assert maxrl(*one_group([0, 2e-6])).tolist() == [0, 0]  # mean 1e-6
    assert maxrl(*one_group([0, 0]), eps=0.0).tolist() == [0, 0]


@pytest.mark.parametrize("reward", [0.1, 0.3, 7.0])
def test_case_b1_equal_rewards_give_exactly_zero(reward):
    got = maxrl(torch.full((3,), reward), torch.zeros(3, dtype=torch.int64))
    assert got.tolist() == [0, 0, 0]


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_case_b3_alone_in_a_group_is_the_named_number(reward):
    rewards, groups = torch.tensor([reward, 0, 1]), torch.tensor([5, 1, 1])
    got = maxrl(rewards, groups, singleton=-1.5)
    assert got[0].item() == -1.5
    assert got[1:].tolist() == pytest.approx([-1, 1], abs=1e-5)


def test_groups_do_not_see_each_other():
    # one mean over the batch would be .5 for both groups
    rewards, groups = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 0]), torch.arange(8) // 4
    alone = [maxrl(rewards[i : i + 4], groups[i : i + 4]) for i in (0, 4)]
    assert torch.equal(maxrl(rewards, groups), torch.cat(alone))
    assert alone[1].tolist() == pytest.approx([1 / 3] * 3 + [-1], abs=1e-5)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_permutes_has_mean_zero_and_weighs_a_success_by_its_rarity(rewards, random):
    order = list(range(len(rewards)))
    random.shuffle(order)
    values, groups = one_group(rewards)
    got = maxrl(values, groups)
    torch.testing.assert_close(maxrl(values[order], groups), got[order], rtol=0, atol=1e-12)
    assert got.mean().item() == pytest.approx(0, abs=1e-9)
    if solved := sum(rewards):
        n = len(rewards)
        want = [(n - solved) / solved if reward else -1 for reward in rewards]
        if solved == n:
            want = [0] * n
        assert got.tolist() == pytest.approx(want, abs=1e-4)


def test_refusals():
    with pytest.raises(
        ValueError,
        match=r"^rewards_N\[1\] is -0\.5; MaxRL needs rewards >= 0\. Pass the success \(0 or 1\) in"
        r"stead of a reward with penalties\.$",
    ):
        maxrl(torch.tensor([1.0, -0.5]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"^rewards_N\[0\] is not finite; mask the trajectory out"):
        maxrl(torch.tensor([math.nan, 1]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"^eps is -1e-06; it must be 0 or more\.$"):
        maxrl(torch.zeros(2), torch.zeros(2, dtype=torch.int64), eps=-1e-6)
