"""HICRA: hand numbers, limits, and what must not leak."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.hicra import hicra


def double(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def run(advantages, planning, *, alpha):
    adv_NT = double(advantages)
    planning_NT = torch.tensor([planning], dtype=torch.bool)
    return hicra(adv_NT, planning_NT, torch.ones_like(planning_NT), alpha=alpha)[0].tolist()


def test_by_hand():
    # 2 (1 + .2), untouched, -2 (1 - .2), untouched, 0
    got = run([2, 2, -2, -2, 0], [1, 0, 1, 0, 1], alpha=0.2)
    assert got == pytest.approx([2.4, 2, -1.6, -2, 0])


def test_alpha_zero_and_no_planning_token_change_no_bit():
    assert run([1 / 3, -1 / 3], [1, 1], alpha=0) == [1 / 3, -1 / 3]
    assert run([1 / 3, -1 / 3], [0, 0], alpha=0.5) == [1 / 3, -1 / 3]


def test_alpha_one_doubles_rewards_and_forgives_penalties():
    assert run([3, -3], [1, 1], alpha=1) == [6, 0]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=1, max_size=8), st.floats(0, 1)
)
def test_no_sign_changes_and_nothing_falls(tokens, alpha):
    advantages, planning = zip(*tokens, strict=True)
    for before, after in zip(advantages, run(advantages, planning, alpha=alpha), strict=True):
        assert before * after >= 0
        assert after >= before


@pytest.mark.parametrize("rubbish", [math.nan, math.inf, 1e6])
def test_what_is_not_sampled_does_not_leak(rubbish):
    mask_NT = torch.tensor([[True, False, True], [False, False, True]])
    planning_NT = torch.tensor([[True, True, False], [True, False, True]])
    adv_NT = double([1, 5, -1], [5, 5, -2]).where(mask_NT, rubbish).requires_grad_()
    got = hicra(adv_NT, planning_NT, mask_NT, alpha=0.5)
    assert got.tolist() == [[1.5, 0, -1], [0, 0, -1]]
    got.sum().backward()
    assert adv_NT.grad.tolist() == [[1.5, 0, 1], [0, 0, 0.5]]


def test_rows_do_not_see_each_other():
    adv_NT, planning_NT = double([1, -1], [2, -2]), torch.tensor([[True, False], [False, True]])
    mask_NT = torch.ones_like(planning_NT)
    got = hicra(adv_NT, planning_NT, mask_NT, alpha=0.5)
    swapped = hicra(adv_NT.flip(0), planning_NT.flip(0), mask_NT, alpha=0.5)
    assert torch.equal(swapped.flip(0), got)


@pytest.mark.parametrize("alpha", [-0.1, 1.5, math.nan])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match=rf"^alpha is {alpha}; it must lie in \[0, 1\]\. Above 1"):
        run([1, 1], [1, 1], alpha=alpha)


def test_bad_tensors_are_refused():
    adv_NT, yes_NT = double([1, 2]), torch.tensor([[True, True]])
    with pytest.raises(ValueError, match=r"^planning_NT has dtype torch\.float64"):
        hicra(adv_NT, adv_NT, yes_NT, alpha=0.5)
    with pytest.raises(ValueError, match=r"^mask_NT has dtype torch\.float64"):
        hicra(adv_NT, yes_NT, adv_NT, alpha=0.5)
    with pytest.raises(ValueError, match=r"^shapes differ"):
        hicra(adv_NT, yes_NT[:, :1], yes_NT, alpha=0.5)
