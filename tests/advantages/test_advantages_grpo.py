import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.grpo import broadcast, grpo, grpo_center

MEMBERS = st.lists(st.integers(-20, 20), min_size=2, max_size=8)


def one_group(rewards):
    return torch.tensor(rewards, dtype=torch.float64), torch.zeros(len(rewards), dtype=torch.int64)


def test_case_b5_golden_of_the_sample_std():
    # mean 1/2; ss = 4 * 1/4 = 1; ddof 1: std = sqrt(1/3) = 0.577350; 0.5 / 0.577351 = 0.866024
    advantages = grpo(*one_group([0, 0, 1, 1]))
    want = 0.5 / (math.sqrt(1 / 3) + 1e-6)
    assert advantages.tolist() == pytest.approx([-want, -want, want, want], abs=1e-12)
    assert want == pytest.approx(0.8660239, abs=1e-7)  # the population std would give 0.999998


def test_case_b5_golden_of_the_population_std():
    # ddof 0: std = sqrt(1/4) = .5; .5 / .500001 = .999998
    advantages = grpo(*one_group([0, 0, 1, 1]), ddof=0)
    assert advantages.tolist() == pytest.approx(
        [-0.999998, -0.999998, 0.999998, 0.999998], abs=5e-7
    )


def test_a_spread_at_or_below_min_std_is_centred_only():
    # group 0: population std .5, at the floor; group 1: std 2, over it: +-2 / (2 + 0)
    rewards, groups = torch.tensor([0.0, 1, 0, 4]), torch.tensor([0, 0, 1, 1])
    got = grpo(rewards, groups, ddof=0, eps=0.0, min_std=0.5)
    assert got.tolist() == [-0.5, 0.5, -1, 1]
    assert grpo(rewards, groups, ddof=0, eps=0.0, min_std=0.49)[:2].tolist() == [-1, 1]


def test_eps_zero_keeps_a_group_without_spread_at_zero():
    assert grpo(*one_group([0.1, 0.1, 0.1]), eps=0.0).tolist() == [0, 0, 0]


def test_center_is_the_reward_minus_the_mean_and_equals_dr_grpo():
    rewards, groups = torch.tensor([1.0, 3, 10, 8, 5]), torch.tensor([0, 0, 1, 1, 2])
    assert grpo_center(rewards, groups).tolist() == [-1, 1, 1, -1, 0]
    assert grpo_center(rewards, groups, singleton=2.5).tolist() == [-1, 1, 1, -1, 2.5]
    dr_grpo = grpo(rewards, groups, normalize_std=False, singleton=2.5)
    assert torch.equal(grpo_center(rewards, groups, singleton=2.5), dr_grpo)


def test_case_b1_center_of_equal_rewards_is_exactly_zero():
    got = grpo_center(torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int64))
    assert got.tolist() == [0, 0, 0]


def test_dr_grpo_only_centres():
    assert grpo(*one_group([1, 0, 0, 0]), normalize_std=False).tolist() == [
        0.75,
        -0.25,
        -0.25,
        -0.25,
    ]


def test_eps_is_added_to_the_std():
    # [0, 2]: std sqrt(2); eps = sqrt(2) halves
    assert grpo(*one_group([0, 2]), eps=math.sqrt(2))[1].item() == pytest.approx(1 / math.sqrt(8))


@pytest.mark.parametrize("normalize_std", [True, False])
def test_case_b1_equal_rewards_give_exactly_zero(normalize_std):
    # 0.1 three times: the plain float mean is not 0.1
    rewards = torch.tensor([1.0, 1, 1, 1, 0, 1, 0, 1, 0.1, 0.1, 0.1])
    groups = torch.tensor([0] * 4 + [1] * 4 + [2] * 3)
    advantages = grpo(rewards, groups, normalize_std=normalize_std)
    assert advantages[:4].tolist() == [0] * 4
    assert advantages[8:].tolist() == [0] * 3
    assert (advantages[4:8] * torch.tensor([-1.0, 1, -1, 1]) > 0.4).all()


@pytest.mark.parametrize("normalize_std", [True, False])
@pytest.mark.parametrize("singleton", [0.0, -1.5])
def test_case_b3_alone_in_a_group_is_the_named_number(normalize_std, singleton):
    advantages = grpo(
        torch.tensor([3.0, 0.0, 1.0]),
        torch.tensor([0, 1, 1]),
        normalize_std=normalize_std,
        singleton=singleton,
    )
    assert advantages[0].item() == singleton
    assert advantages.isfinite().all()
    assert advantages[1].item() < 0


def test_case_b3_default_for_a_lone_trajectory_is_zero():
    assert grpo(torch.tensor([3.0]), torch.tensor([4])).tolist() == [0]


def test_case_b4_shuffled_rows_give_shuffled_advantages():
    generator = torch.Generator().manual_seed(1)
    rewards = torch.randn(24, dtype=torch.float64, generator=generator)
    groups = torch.arange(24) // 4
    order = torch.randperm(24, generator=generator)
    torch.testing.assert_close(
        grpo(rewards[order], groups[order]), grpo(rewards, groups)[order], rtol=0, atol=1e-12
    )


def test_case_b4_groups_do_not_see_each_other():
    # Two tasks with the same text and another seed are groups 0 and 1, and stay separate.
    rewards, groups = torch.tensor([0.0, 1.0, 0.0, 100.0]), torch.tensor([0, 0, 1, 1])
    assert torch.equal(grpo(rewards, groups)[:2], grpo(rewards[:2], groups[:2]))


@settings(deadline=None)
@given(MEMBERS, st.randoms(use_true_random=False))
def test_permuting_members_permutes_the_result(rewards, random):
    order = list(range(len(rewards)))
    random.shuffle(order)
    values, groups = one_group(rewards)
    torch.testing.assert_close(
        grpo(values[order], groups), grpo(values, groups)[order], rtol=0, atol=1e-10
    )


@settings(deadline=None)
@given(MEMBERS, st.integers(-1000, 1000))
def test_adding_a_constant_changes_nothing_and_the_mean_is_zero(rewards, constant):
    values, groups = one_group(rewards)
    advantages = grpo(values, groups)
    torch.testing.assert_close(grpo(values + constant, groups), advantages, rtol=0, atol=1e-9)
    assert advantages.mean().item() == pytest.approx(0, abs=1e-9)


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match=r"^rewards_N\[1\] is not finite; mask the trajectory out"):
        grpo(torch.tensor([0.0, math.nan]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"^rewards_N\[0\] is not finite; mask the trajectory out"):
        grpo_center(torch.tensor([math.inf, 0]), torch.tensor([0, 0]))


@pytest.mark.parametrize("name", ["eps", "min_std"])
@pytest.mark.parametrize("number", [-1.0, math.nan])
def test_a_floor_is_not_negative(name, number):
    with pytest.raises(ValueError, match=rf"^{name} is {number}; it must be 0 or more\.$"):
        grpo(*one_group([0, 1]), **{name: number})


def test_ddof_is_zero_or_one():
    with pytest.raises(ValueError, match=r"^ddof is 2; choose 0 \(population\) or 1 \(sample\)\.$"):
        grpo(*one_group([0, 1]), ddof=2)


def test_broadcast_fills_sampled_tokens_only():
    mask = torch.tensor([[True, False, True], [False, False, True]])
    assert broadcast(torch.tensor([2.0, -1.0]), mask).tolist() == [[2, 0, 2], [0, 0, -1]]


@pytest.mark.parametrize("shape", [(2, 1), (3,), ()])
def test_broadcast_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match=r"^shapes do not fit: .* Expected \(N,\) and \(N, T\)\.$"):
        broadcast(torch.zeros(shape), torch.ones(2, 3, dtype=torch.bool))
