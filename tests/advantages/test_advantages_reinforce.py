import math

import pytest
import torch

from rltune.advantages.gae import gae
from rltune.advantages.grpo import broadcast, grpo_center
from rltune.advantages.reinforce import reinforce_pp, reinforce_pp_baseline
from rltune.maths.masked import masked_whiten


def run(rewards, mask, gamma):
    row = torch.tensor([rewards], dtype=torch.float64)
    return reinforce_pp(row, torch.tensor([mask], dtype=torch.bool), gamma=gamma)[0].tolist()


def test_by_hand():
    # 4; 2 + .5 * 4 = 4; 1 + .5 * 4 = 3
    assert run([1, 2, 4], [1, 1, 1], 0.5) == [3, 4, 4]


def test_case_b7_verl_example_is_carried_through_the_observation_undiscounted():
    # verl PR #6376: [0, 0, 1], mask [1, 0, 1], gamma .5 -> [.5, -, 1]
    assert run([0, 0, 1], [1, 0, 1], 0.5) == [0.5, 0, 1]


def test_inserted_observations_and_padding_change_nothing():
    short = run([1, 2, 4], [1, 1, 1], 0.9)
    long = run([0, 1, 0, 0, 2, 4, 0], [0, 1, 0, 0, 1, 1, 0], 0.9)
    assert [long[t] for t in (1, 4, 5)] == short
    assert [long[t] for t in (0, 2, 3, 6)] == [0, 0, 0, 0]


def test_limits_of_gamma():
    assert run([1, 2, 4], [1, 1, 1], 0.0) == [1, 2, 4]
    assert run([1, 2, 4], [1, 1, 1], 1.0) == [7, 6, 4]
    assert run([0, 0, 0], [1, 1, 1], 0.5) == [0, 0, 0]


def test_rows_do_not_see_each_other_and_permute():
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(4, 6, generator=generator) < 0.6
    rewards = torch.randn(4, 6, generator=generator).where(mask, 0)
    whole = reinforce_pp(rewards, mask, gamma=0.9)
    order = [2, 0, 3, 1]
    assert torch.equal(reinforce_pp(rewards[order], mask[order], gamma=0.9), whole[order])
    assert torch.equal(reinforce_pp(rewards[1:2], mask[1:2], gamma=0.9), whole[1:2])


def test_is_gae_of_a_critic_that_says_zero():
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(3, 7, generator=generator) < 0.6
    rewards = torch.randn(3, 7, generator=generator).where(mask, math.nan)
    want = gae(rewards, torch.zeros(3, 7), mask, gamma=0.8, lam=1.0).returns_NT
    assert torch.equal(reinforce_pp(rewards, mask, gamma=0.8), want)


def test_a_reward_outside_the_mask_is_refused_not_lost():
    with pytest.raises(ValueError, match=r"^reward 1 at row 0, token 2 lies outside the mask and"):
        run([0, 0, 1], [1, 1, 0], 1.0)
    with pytest.raises(ValueError, match=r"^gamma is 1\.5; it must lie in \[0, 1\]\.$"):
        run([0], [1], 1.5)
    with pytest.raises(ValueError, match=r"^mask_NT has dtype torch\.float32; a mask must be"):
        reinforce_pp(torch.zeros(1, 2), torch.ones(1, 2), gamma=1.0)


def test_baseline_subtracts_the_group_mean_only():
    rewards, groups = torch.tensor([1.0, 3, 10, 8]), torch.tensor([0, 0, 1, 1])
    # means 2 and 9; a division by the std would give +-.7071 in both
    assert reinforce_pp_baseline(rewards, groups).tolist() == [-1, 1, 1, -1]
    assert torch.equal(reinforce_pp_baseline(rewards, groups), grpo_center(rewards, groups))


@pytest.mark.parametrize("singleton", [0.0, 2.5])
def test_case_b3_baseline_of_a_lone_trajectory_is_the_named_number(singleton):
    rewards, groups = torch.tensor([1.0, 3, 10]), torch.tensor([0, 0, 1])
    got = reinforce_pp_baseline(rewards, groups, singleton=singleton)
    assert got.tolist() == [-1, 1, singleton]
    assert reinforce_pp_baseline(rewards, groups)[2].item() == 0


def test_baseline_whitened_over_the_tokens_by_the_caller():
    # advantages -1 (1 token) and 1 (3 tokens): mean .5, deviations -1.5, .5 x3;
    # var = (2.25 + .75) / 3 = 1, so that whitened = the deviations
    advantages = reinforce_pp_baseline(torch.tensor([0.0, 2]), torch.tensor([4, 4])).double()
    mask = torch.tensor([[True, False, False], [True, True, True]])
    white = masked_whiten(broadcast(advantages, mask), mask, eps=0.0)
    assert white.tolist() == [[-1.5, 0, 0], [0.5, 0.5, 0.5]]


def test_baseline_refuses_what_is_not_finite():
    with pytest.raises(ValueError, match=r"^rewards_N\[0\] is not finite; mask the trajectory out"):
        reinforce_pp_baseline(torch.tensor([math.nan, 1]), torch.tensor([0, 0]))
