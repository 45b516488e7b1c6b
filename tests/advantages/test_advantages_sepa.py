"""SEPA: pooling of the signal and its variance. The schedules have their own file."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.gtpo import gtpo
from rltune.advantages.sepa import exec_variance, sepa_pool

H, PLANNING = [0.5, 1, 0.3, 2], [1, 0, 0, 1]


def double(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def flags(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def run(*, lam, signal=H, planning=PLANNING, **numbers):
    signal_NT, planning_NT = double(signal), flags(planning)
    return sepa_pool(signal_NT, planning_NT, torch.ones_like(planning_NT), lam=lam, **numbers)


# execution tokens 1 and .3: mean .65; half way 1 -> .825 and .3 -> .475
@pytest.mark.parametrize(
    ("lam", "want"),
    [
        (0.0, H),
        (0.5, [0.5, 0.825, 0.475, 2]),
        (1.0, [0.5, 0.65, 0.65, 2]),
        (7.0, [0.5, 0.65, 0.65, 2]),
        (-1.0, H),
    ],
)
def test_goldens(lam, want):
    assert run(lam=lam)[0].tolist() == pytest.approx(want, abs=1e-12)


def test_golden_with_gtpo():
    pooled_NT = run(lam=1.0)
    got = gtpo(
        torch.full_like(pooled_NT, 3), pooled_NT, torch.ones(1, 4, dtype=torch.bool), beta=0.1
    )
    want = [2.857895, 2.905263, 2.905263, 3.331579]
    assert got[0].tolist() == pytest.approx(want, abs=1e-6)


def test_lambda_zero_changes_no_bit():
    assert run(lam=0.0, signal=[1 / 3, 0.1, 0.7, 2e-9])[0].tolist() == [1 / 3, 0.1, 0.7, 2e-9]


def test_planning_tokens_alone_stay():
    assert run(lam=1.0, planning=[1] * 4)[0].tolist() == H


def test_without_planning_tokens_all_become_the_mean():
    assert run(lam=1.0, planning=[0] * 4)[0].tolist() == pytest.approx([0.95] * 4)


def test_scopes_by_hand():
    signal_NT, planning_NT = double([1, 3, 8], [6, 5, 9]), flags([0, 0, 1], [0, 1, 0])
    mask_NT = flags([1, 1, 1], [1, 1, 0])  # execution: 1, 3 | 6
    row = sepa_pool(signal_NT, planning_NT, mask_NT, lam=1.0)
    assert row.tolist() == [[2, 2, 8], [6, 5, 0]]
    batch = sepa_pool(signal_NT, planning_NT, mask_NT, lam=0.5, scope="batch")  # mean 10 / 3
    assert batch[0].tolist() == pytest.approx([0.5 + 5 / 3, 1.5 + 5 / 3, 8])
    assert batch[1].tolist() == pytest.approx([3 + 5 / 3, 5, 0])


@pytest.mark.parametrize("scope", ["completion", "batch"])
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, 1e6])
def test_what_is_not_sampled_does_not_leak(scope, rubbish):
    signal_NT, mask_NT = double([1, 3, 8], [6, 5, 9]), flags([1, 1, 0], [0, 1, 0])
    planning_NT = flags([0, 0, 1], [1, 1, 0])
    dirty_NT = signal_NT.where(mask_NT, rubbish)
    want = sepa_pool(signal_NT, planning_NT, mask_NT, lam=0.5, scope=scope)
    # The marks outside the mask do not count either.
    got = sepa_pool(dirty_NT, planning_NT ^ ~mask_NT, mask_NT, lam=0.5, scope=scope)
    assert torch.equal(got, want)
    assert (got[~mask_NT] == 0).all()
    assert exec_variance(dirty_NT, planning_NT, mask_NT) == 1  # of 1 and 3


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.booleans()), min_size=1, max_size=8),
    st.floats(0, 1),
    st.sampled_from(["completion", "batch"]),
)
def test_pooling_keeps_the_mean_and_shrinks_the_variance(tokens, lam, scope):
    signal, planning = zip(*tokens, strict=True)
    signal_NT, planning_NT = double(signal), flags(planning)
    mask_NT = torch.ones_like(planning_NT)
    pooled_NT = sepa_pool(signal_NT, planning_NT, mask_NT, lam=lam, scope=scope)
    assert (pooled_NT >= 0).all()  # so that the weights of GTPO keep the sign
    assert pooled_NT.sum().item() == pytest.approx(sum(signal), abs=1e-9)
    before = exec_variance(signal_NT, planning_NT, mask_NT)
    after = exec_variance(pooled_NT, planning_NT, mask_NT)
    if before is None:
        assert after is None
    else:
        assert after == pytest.approx((1 - lam) ** 2 * before, abs=1e-9)


def test_rows_do_not_see_each_other_under_completion():
    signal_NT, planning_NT = double([1, 3], [5, 9]), flags([0, 0], [0, 0])
    mask_NT = torch.ones_like(planning_NT)
    got = sepa_pool(signal_NT, planning_NT, mask_NT, lam=0.5)
    swapped = sepa_pool(signal_NT.flip(0), planning_NT, mask_NT, lam=0.5)
    assert torch.equal(swapped.flip(0), got)


def test_nothing_flows_back_through_the_pool():
    signal_NT = double(H).requires_grad_()
    pooled = sepa_pool(signal_NT, flags(PLANNING), flags([1] * 4), lam=0.5)
    assert not pooled.requires_grad


def test_exec_variance_by_hand():
    mask = flags([1, 1, 1, 1])
    # of the population: mean .65, deviations .35 and -.35
    assert exec_variance(double(H), flags(PLANNING), mask) == pytest.approx(0.1225)
    assert exec_variance(double(H), flags([1, 0, 1, 1]), mask) == 0  # one token
    two = double([1, 5], [3, 7]), flags([0, 1], [0, 1]), flags([1, 1], [1, 1])
    assert exec_variance(*two) == 1  # over the batch, whatever the scope


def test_exec_variance_of_nothing_is_none():
    mask = flags([1, 1, 1, 1])
    assert exec_variance(double(H), mask, mask) is None
    assert exec_variance(double(H), flags([0] * 4), ~mask) is None
    assert exec_variance(double([math.nan, 1, 1, 1]), flags([0] * 4), mask) is None
    assert exec_variance(double([math.inf, 1, 1, 1]), flags([0] * 4), mask) is None


def test_exec_variance_is_computed_in_double_precision():
    signal_NT = torch.tensor([[1, 2, 4]], dtype=torch.bfloat16)
    got = exec_variance(signal_NT, flags([0, 0, 0]), flags([1, 1, 1]))
    assert got == pytest.approx(14 / 9, rel=1e-12)  # 21 / 3 - (7 / 3)^2


def test_half_precision_is_pooled_in_full():
    signal_NT = torch.tensor([[1.0, 1.0078125]], dtype=torch.bfloat16)
    got = sepa_pool(signal_NT, flags([0, 0]), flags([1, 1]), lam=1.0)
    assert got.tolist() == [[1.00390625, 1.00390625]]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"^lam is nan; it must be a number\.$"):
        run(lam=math.nan)
    with pytest.raises(ValueError, match=r"^scope is 'row'; choose one of completion, batch\.$"):
        run(lam=0.5, scope="row")
    signal_NT, yes_NT = double(H), flags([1] * 4)
    for call in (
        exec_variance,
        lambda *tensors: sepa_pool(*tensors, lam=0.5),
    ):
        with pytest.raises(ValueError, match=r"^planning_NT has dtype"):
            call(signal_NT, signal_NT, yes_NT)
        with pytest.raises(ValueError, match=r"^mask_NT has dtype"):
            call(signal_NT, yes_NT, signal_NT)
        with pytest.raises(ValueError, match=r"^shapes differ"):
            call(signal_NT, yes_NT[:, :2], yes_NT)
