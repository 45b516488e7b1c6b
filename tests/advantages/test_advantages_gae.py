import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.gae import gae


def run(rewards, values, mask, **numbers):
    row = [torch.tensor([x], dtype=torch.float64) for x in (rewards, values)]
    return gae(
        *row, torch.tensor([mask], dtype=torch.bool), **{"gamma": 1.0, "lam": 1.0, **numbers}
    )


def test_by_hand():
    # t=2: delta = 1 - .2 = .8                             A = .8
    # t=1: delta = 0 + .5 * .2 - .4 = -.3                  A = -.3 + .5 * .5 * .8 = -.1
    # t=0: delta = .1 + .5 * .4 - .6 = -.3                 A = -.3 + .25 * -.1 = -.325
    result = run([0.1, 0, 1], [0.6, 0.4, 0.2], [1, 1, 1], gamma=0.5, lam=0.5)
    assert result.advantages_NT[0].tolist() == pytest.approx([-0.325, -0.1, 0.8])
    assert result.returns_NT[0].tolist() == pytest.approx([0.275, 0.3, 1.0])  # A + V


def test_lam_zero_is_the_one_step_error():
    # delta_1 = 2 - .5; delta_0 = 1 + .9 * .5 - .3
    result = run([1, 2], [0.3, 0.5], [1, 1], gamma=0.9, lam=0.0)
    assert result.advantages_NT[0].tolist() == pytest.approx([1.15, 1.5])


def test_lam_one_gamma_one_is_return_minus_value():
    # sampled rewards 1, 0, 4: to go 5, 4, 4
    result = run([1, 0, 0, 4], [0.5, 9.0, 1.5, 2.0], [1, 0, 1, 1])
    assert result.advantages_NT[0].tolist() == pytest.approx([4.5, 0, 2.5, 2.0])
    assert result.returns_NT[0].tolist() == pytest.approx([5, 0, 4, 4])


def test_case_b7_verl_example_is_carried_through_the_observation_undiscounted():
    # verl PR #6376: [0, 0, 1], mask [1, 0, 1], gamma .5 -> [.5, -, 1]
    result = run([0, 0, 1], [0, 0, 0], [1, 0, 1], gamma=0.5)
    assert result.advantages_NT[0].tolist() == [0.5, 0, 1]


def test_equal_to_the_row_without_observations():
    rewards, values, mask = [0.1, 0, 0, -1, 0, 2, 0], [1, 8, 8, 3, 8, 5, 8], [1, 0, 0, 1, 0, 1, 0]
    kept = [t for t in range(7) if mask[t]]
    numbers = {"gamma": 0.9, "lam": 0.7}
    full = run(rewards, values, mask, **numbers)
    short = run([rewards[t] for t in kept], [values[t] for t in kept], [1, 1, 1], **numbers)
    assert torch.equal(full.advantages_NT[:, kept], short.advantages_NT)
    assert torch.equal(full.returns_NT[:, kept], short.returns_NT)


@pytest.mark.parametrize("rubbish", [math.nan, 1e6, math.inf])
def test_case_b7_values_outside_the_mask_never_matter(rubbish):
    mask = torch.tensor([[True, False, True, False], [False, True, True, False]])
    rewards = torch.tensor([[0.0, 0, 1, math.nan], [math.nan, 1, 0, 0]])
    values = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))
    clean = gae(rewards.where(mask, 0), values, mask, gamma=0.9, lam=0.8)
    dirty = gae(rewards, values.where(mask, rubbish), mask, gamma=0.9, lam=0.8)
    assert torch.equal(clean.advantages_NT, dirty.advantages_NT)
    assert torch.equal(clean.returns_NT, dirty.returns_NT)


def test_case_b7_a_reward_outside_the_mask_is_refused_not_lost():
    with pytest.raises(
        ValueError, match=r"^reward 1 at row 0, token 2 lies outside the mask and wo"
    ):
        run([0, 0, 1], [0, 0, 0], [1, 1, 0])


def test_bootstrap_stands_in_for_the_state_after_the_last_sampled_token():
    # last sampled token is 1: delta = 0 + .5 * 8 - 1 = 3; t=0: 0 + .5 * 1 - 2 + .5 * 3 = 0
    bootstrap = torch.tensor([8.0], dtype=torch.float64)
    result = run([0, 0, 0], [2, 1, 7], [1, 1, 0], gamma=0.5, bootstrap_N=bootstrap)
    assert result.advantages_NT[0].tolist() == [0, 3, 0]


def test_no_bootstrap_is_bootstrap_zero():
    args = ([0, 1], [2, 1], [1, 1])
    zero = torch.zeros(1, dtype=torch.float64)
    assert torch.equal(run(*args).advantages_NT, run(*args, bootstrap_N=zero).advantages_NT)


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_rows_do_not_see_each_other_and_permute(seed):
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, 3, 5, generator=generator)
    mask = torch.rand(3, 5, generator=generator) < 0.6
    rewards = rewards.where(mask, 0)
    whole = gae(rewards, values, mask, gamma=0.9, lam=0.8)
    order = [2, 0, 1]
    shuffled = gae(rewards[order], values[order], mask[order], gamma=0.9, lam=0.8)
    assert torch.equal(shuffled.advantages_NT, whole.advantages_NT[order])
    alone = gae(rewards[1:2], values[1:2], mask[1:2], gamma=0.9, lam=0.8)
    assert torch.equal(alone.returns_NT[0], whole.returns_NT[1])


def test_results_are_constants_in_full_precision():
    values = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    result = gae(torch.zeros(1, 2), values, torch.ones(1, 2, dtype=torch.bool), gamma=1.0, lam=1.0)
    assert not result.advantages_NT.requires_grad
    assert not result.returns_NT.requires_grad
    assert result.advantages_NT.dtype == torch.float32


def test_a_row_without_sampled_tokens_is_zero():
    assert run([0, 0], [3, 4], [0, 0]).returns_NT.tolist() == [[0, 0]]


def test_refusals():
    with pytest.raises(ValueError, match=r"^gamma is 1\.1; it must lie in \[0, 1\]\.$"):
        run([0], [0], [1], gamma=1.1)
    with pytest.raises(ValueError, match=r"^lam is -0\.1; it must lie in \[0, 1\]\.$"):
        run([0], [0], [1], lam=-0.1)
    with pytest.raises(ValueError, match=r"^a reward on a sampled token is not finite; check"):
        run([math.nan], [0], [1])
    with pytest.raises(ValueError, match=r"^shapes differ: bootstrap_N \(2,\), row \(1,\)\."):
        run([0], [0], [1], bootstrap_N=torch.zeros(2))
    with pytest.raises(ValueError, match=r"^mask_NT has dtype torch\.float32; a mask must be"):
        gae(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1), gamma=1.0, lam=1.0)
