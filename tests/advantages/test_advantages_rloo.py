import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.grpo import grpo_center
from rltune.advantages.rloo import rloo

MEMBERS = st.lists(st.integers(-20, 20), min_size=2, max_size=8)


def one_group(rewards):
    return torch.tensor(rewards, dtype=torch.float64), torch.zeros(len(rewards), dtype=torch.int64)


def test_by_hand():
    # the others' means of 1, 2, 6: 4, 3.5, 1.5
    assert rloo(*one_group([1, 2, 6])).tolist() == pytest.approx([-3, -1.5, 4.5])


@settings(deadline=None)
@given(MEMBERS)
def test_is_the_reward_minus_the_mean_of_the_others(rewards):
    total, others = sum(rewards), len(rewards) - 1
    want = [reward - (total - reward) / others for reward in rewards]
    assert rloo(*one_group(rewards)).tolist() == pytest.approx(want, abs=1e-12)


@settings(deadline=None)
@given(MEMBERS, st.randoms(use_true_random=False), st.integers(-1000, 1000))
def test_permutes_and_a_constant_changes_nothing(rewards, random, constant):
    order = list(range(len(rewards)))
    random.shuffle(order)
    values, groups = one_group(rewards)
    torch.testing.assert_close(
        rloo(values[order] + constant, groups), rloo(values, groups)[order], rtol=0, atol=1e-9
    )


def test_two_members_double_the_centred_reward():
    values, groups = one_group([0, 3])
    assert torch.equal(rloo(values, groups), 2 * grpo_center(values, groups))


def test_case_b1_equal_rewards_give_exactly_zero():
    assert rloo(torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int64)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("singleton", [0.0, -1.5])
def test_case_b3_alone_in_a_group_is_the_named_number(singleton):
    got = rloo(torch.tensor([3.0, 0, 1]), torch.tensor([9, 1, 1]), singleton=singleton)
    assert got.tolist() == [singleton, -1, 1]
    assert rloo(torch.tensor([3.0]), torch.tensor([9])).tolist() == [0]


def test_groups_of_different_sizes_do_not_see_each_other():
    rewards, groups = torch.tensor([0.0, 1, 100, 2, 5]), torch.tensor([0, 0, 1, 0, 1])
    # group 0: 0, 1, 2 -> -1.5, 0, 1.5; group 1: 100, 5 -> 95, -95
    assert rloo(rewards, groups).tolist() == pytest.approx([-1.5, 0, 95, 1.5, -95])


def test_refusals():
    with pytest.raises(ValueError, match=r"^rewards_N\[1\] is not finite; mask the trajectory out"):
        rloo(torch.tensor([0.0, torch.inf]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"^shapes differ: values_N \(2,\), group_N \(3,\)\."):
        rloo(torch.zeros(2), torch.zeros(3, dtype=torch.int64))
