import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.maths.groups import group_mean, group_sizes, group_std

VALUES = torch.tensor([0.0, 10.0, 1.0, 20.0, 5.0])
GROUPS = torch.tensor([7, -3, 7, -3, 100])  # interleaved, neither dense nor sorted


def test_mean_by_hand():
    assert group_mean(VALUES, GROUPS).tolist() == [0.5, 15, 0.5, 15, 5]


@pytest.mark.parametrize(
    ("ddof", "stds"),
    [
        (0, [0.5, 5]),  # sqrt(2 * 0.25 / 2), sqrt(2 * 25 / 2)
        (1, [math.sqrt(0.5), math.sqrt(50)]),  # divided by 1
    ],
)
def test_std_by_hand_and_zero_for_a_group_of_one(ddof, stds):
    small, large = stds
    std = group_std(VALUES, GROUPS, ddof=ddof).tolist()
    assert std == pytest.approx([small, large, small, large, 0])


def test_sizes():
    assert group_sizes(GROUPS).tolist() == [2, 2, 2, 2, 1]


@pytest.mark.parametrize("value", [0.1, -0.3, 1e6 + 0.1])
def test_equal_values_have_exactly_their_mean_and_no_spread(value):
    values, groups = torch.full((3,), value), torch.zeros(3, dtype=torch.int64)
    assert torch.equal(group_mean(values, groups), values)
    assert group_std(values, groups, ddof=1).tolist() == [0, 0, 0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-100, 100), st.integers(0, 3)), min_size=1, max_size=12))
def test_equal_to_a_loop_over_groups(rows):
    values = torch.tensor([value for value, _ in rows], dtype=torch.float64)
    groups = torch.tensor([group for _, group in rows])
    mean = torch.stack([values[groups == group].mean() for group in groups])
    std = torch.stack([values[groups == group].std(correction=0) for group in groups])
    torch.testing.assert_close(group_mean(values, groups), mean, rtol=0, atol=1e-11)
    torch.testing.assert_close(group_std(values, groups, ddof=0), std, rtol=0, atol=1e-11)


def test_refusals():
    with pytest.raises(ValueError, match=r"^ddof is 2; choose 0 \(population\) or 1 \(sample\)\.$"):
        group_std(VALUES, GROUPS, ddof=2)
    with pytest.raises(ValueError, match=r"^shapes differ: values_N \(5,\), group_N \(4,\)\."):
        group_mean(VALUES, GROUPS[:4])
    with pytest.raises(ValueError, match=r"^values_N has dtype torch\.int64; expected a floating"):
        group_mean(VALUES.long(), GROUPS)
    with pytest.raises(ValueError, match=r"^group_N has shape \(5,\) and dtype torch\.float32;"):
        group_sizes(VALUES)
