import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.adca import adca
from rltune.advantages.adca_steps import (
    fuse,
    outcome_zscore,
    raw_allocation,
    raw_decouple,
    step_zscore,
)

T = torch.tensor


def f64(rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_raw_decouple_by_hand():
    good, counted = T([[True, False, True]]), T([[True, True, False]])
    assert raw_decouple(good, counted, fix_base=0.5).tolist() == [[0.5, -0.5, 0]]


def test_raw_allocation_by_hand():
    good = T([[True, True, False], [False, True, True], [True, False, True]])
    counted = T([[True, True, True], [True, True, False], [False, False, False]])
    raw = raw_allocation(good, counted, T([True, False, True]))
    assert raw[0].tolist() == pytest.approx([1 / 2.2, 1 / 2.2, 0.2 / 2.2])  # W = 1 + 1 + .2
    assert raw[1].tolist() == pytest.approx([-1 / 1.2, -0.2 / 1.2, 0])  # W = 1 + .2
    assert raw[2].tolist() == [0, 0, 0]


def test_raw_allocation_sums_to_the_sign_of_the_outcome():
    good = torch.rand(20, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    success = torch.arange(20) % 2 == 0
    raw = raw_allocation(good, torch.ones_like(good), success, consistent_weight=2.0)
    torch.testing.assert_close(raw.sum(1), f64([1.0, -1.0] * 10))


def test_raw_allocation_with_nothing_to_share_out_is_zero():
    # reference/adca_textpolicy.md A9: BAD turns of a success weigh 0
    good, success = T([[True, True], [False, False]]), T([True, True])
    raw = raw_allocation(good, torch.ones_like(good), success, bad_in_success_weight=0.0)
    assert raw.tolist() == [[0.5, 0.5], [0, 0]]
    z = step_zscore(raw, torch.ones_like(good), T([0, 0]))
    got = fuse(z, torch.zeros(2), torch.ones_like(good), fusion="last_step", alpha=0.1)
    assert got[1].tolist() == pytest.approx([-0.2, -0.1], abs=1e-6)


def test_step_zscore_weighs_trajectories_or_turns_alike():
    # rows 1 1 1 1 / 3: means 1 and 3, mu 2, var (1 + 1) / 2 = 1; flat: mu 7/5, var 16/25
    raw, counted = f64([[1, 1, 1, 1], [3, 0, 0, 0]]), T([[True] * 4, [True, False, False, False]])
    group = T([7, 7])
    z = step_zscore(raw, counted, group, eps=0.0)
    assert z.tolist() == [pytest.approx([-1] * 4), pytest.approx([1, 0, 0, 0])]
    z = step_zscore(raw, counted, group, scope="flat")
    assert z.tolist() == [pytest.approx([-0.5] * 4), pytest.approx([2, 0, 0, 0])]


def test_step_zscore_floors_differ():
    raw, counted, group = f64([[0, 2e-4]]), T([[True, True]]), T([0])
    # deviation 1e-4, var 1e-8: sqrt(1e-8 + 3e-8) = 2e-4; flat: max(1e-4, 1e-3)
    assert step_zscore(raw, counted, group, eps=3e-8)[0, 1].item() == pytest.approx(0.5)
    assert step_zscore(raw, counted, group, scope="flat", eps=1e-3)[0, 1].item() == pytest.approx(
        0.1
    )


@pytest.mark.parametrize("scope", ["trajectory", "flat"])
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, 1e6])
def test_step_zscore_never_reads_what_is_not_counted(scope, rubbish):
    raw = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    counted = T([[True, True, False], [True, False, False], [False] * 3, [True] * 3])
    group = T([0, 0, 0, 5])
    clean = step_zscore(raw, counted, group, scope=scope)
    dirty = step_zscore(raw.where(counted, rubbish), counted, group, scope=scope)
    assert torch.equal(clean, dirty)
    assert (clean[~counted] == 0).all()


@pytest.mark.parametrize("scope", ["trajectory", "flat"])
def test_step_zscore_of_equal_rewards_is_exactly_zero(scope):
    raw = torch.full((3, 7), 0.1)
    z = step_zscore(raw, torch.ones(3, 7, dtype=torch.bool), T([0, 0, 0]), scope=scope)
    assert (z == 0).all()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000))
def test_step_zscore_has_weighted_mean_zero_and_permutes(seed):
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(5, 4, dtype=torch.float64, generator=generator)
    counted = torch.rand(5, 4, generator=generator) < 0.7
    counted[:, 0] = True
    group = torch.zeros(5, dtype=torch.int64)
    z = step_zscore(raw, counted, group)
    assert (z.sum(1) / counted.sum(1)).mean().item() == pytest.approx(0, abs=1e-9)
    assert step_zscore(raw, counted, group, scope="flat").sum().item() == pytest.approx(0, abs=1e-9)
    order = torch.randperm(5, generator=generator)
    torch.testing.assert_close(step_zscore(raw[order], counted[order], group), z[order])


def test_outcome_zscore_by_hand():
    # [1, 0, 0, 0]: mean 1/4, population var 3/16; 3/4 / (sqrt 3 / 4) = sqrt 3
    got = outcome_zscore(f64([1, 0, 0, 0]), T([0, 0, 0, 0]))
    assert got.tolist() == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3])
    # std 5e-10 is at most eps: centred only; a lone one is its own mean
    got = outcome_zscore(f64([0, 1e-9, 4]), T([0, 0, 1]))
    assert got.tolist() == pytest.approx([-5e-10, 5e-10, 0], rel=1e-6)


def test_fuse_by_hand():
    step, turns = f64([[1, 2, 4], [3, math.nan, math.nan]]), T([[True] * 3, [True, False, False]])
    outcome = f64([10, -10])
    got = fuse(step, outcome, turns, fusion="last_step", alpha=0.5)
    assert got.tolist() == [[13.5, 13, 12], [-8.5, 0, 0]]  # .5 * 7 + 10, .5 * 6 + 10, ...
    got = fuse(step, outcome, turns, fusion="all_steps", alpha=0.5)
    assert got.tolist() == [[33.5, 23, 12], [-8.5, 0, 0]]
    got = fuse(step, outcome, turns, fusion="last_step", alpha=0.5, length_normalize=True)
    assert got[0].tolist() == pytest.approx([x / math.sqrt(3) for x in (13.5, 13, 12)])
    assert got[1].tolist() == [-8.5, 0, 0]


def test_one_turn_makes_the_fusions_equal():
    step, outcome, turns = f64([[2], [-1]]), f64([1, 5]), T([[True], [True]])
    last, every = (
        fuse(step, outcome, turns, fusion=name, alpha=0.3) for name in ("last_step", "all_steps")
    )
    assert torch.equal(last, every)
    assert last[:, 0].tolist() == pytest.approx([1.6, 4.7])


def test_the_last_turn_is_the_last_that_exists():
    turns = T([[True, False, True, False]])
    got = fuse(torch.zeros(1, 4), torch.ones(1), turns, fusion="last_step", alpha=1.0)
    assert got.tolist() == [[1, 0, 1, 0]]


def metrics(**numbers):
    inputs = {
        "flags_NK": T([[1, 1, 0], [0, 1, -1], [1, 1, -1], [1, 0, -1], [1, -1, -1]]).to(torch.int8),
        "is_judged_N": T([True, True, True, True, False]),
        "is_turn_NK": T([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0]]).bool(),
        "outcome_N": f64([1, 0, 1, 1, 1]),
        "is_success_N": T([True, False, True, True, True]),
        "group_N": T([0, 0, 1, 1, 2]),
    }
    return adca(**inputs, alpha=0.1, **numbers).metrics


def test_metrics_by_hand():
    got = metrics()
    assert all(name.startswith("adca/") and type(value) is float for name, value in got.items())
    assert got["adca/judged_rate"] == pytest.approx(4 / 5)
    assert got["adca/steps_mean"] == pytest.approx(9 / 4)
    assert got["adca/good_rate"] == pytest.approx(6 / 9)
    assert got["adca/good_in_success_rate"] == pytest.approx(5 / 7)
    assert got["adca/good_in_failure_rate"] == pytest.approx(1 / 2)
    assert got["adca/agree_rate"] == pytest.approx(2 / 4)  # rows 0 and 2; rows 1 and 3 are ties
    assert got["adca/outcome_std"] == pytest.approx(math.sqrt(2 / 5))  # 1, -1, 0, 0, 0
    assert got["adca/outcome_mean"] == pytest.approx(0)
    # groups 1 and 2 have no spread; flags differ in group 1 alone
    assert got["adca/no_spread_taught_rate"] == pytest.approx(1 / 2)
    # A of the first turns: +, -, .11547, -.11547; success +, -, +, +
    assert got["adca/sign_agree_rate"] == pytest.approx(3 / 4)
    assert got["adca/alpha"] == 0.1
    plain = metrics(normalize=False)  # mass .1 * .2 * K: .06, .04, .04, .04; outcome 1, 1, 0, 0
    assert plain["adca/outcome_share"] == pytest.approx((1 / 1.06 + 1 / 1.04) / 4)
    assert plain["adca/step_mean"] == pytest.approx(0.2 * (6 - 3) / 9)
    assert plain["adca/step_std"] == pytest.approx(0.4 * math.sqrt(2 / 9))  # p (1 - p) = 2/9


REFUSED = [
    (lambda: step_zscore(f64([[math.nan]]), T([[True]]), T([0])), r"^a counted raw reward is not"),
    (lambda: step_zscore(f64([[1]]), T([[True]]), T([0, 0])), r"^group_N has shape \(2,\); expect"),
    (lambda: step_zscore(f64([[1]]), T([[True, True]]), T([0])), r"^shapes differ: raw_NK \(1, 1"),
    (lambda: raw_decouple(T([[1]]), T([[True]]), fix_base=1.0), r"^is_good_NK has dtype torch\."),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
