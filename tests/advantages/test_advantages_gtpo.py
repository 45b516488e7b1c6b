"""GTPO: goldens of the original, then limits, scopes, and what must not leak."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.gtpo import gtpo
from rltune.advantages.scopes import scope_mean

H = [0.5, 1, 0.3, 2]  # mean .95


def double(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def ones(values_NT):
    return torch.ones_like(values_NT, dtype=torch.bool)


def run(advantage, *, beta, signal=H, **numbers):
    signal_NT = double(signal)
    advantages_NT = torch.full_like(signal_NT, advantage)
    return gtpo(advantages_NT, signal_NT, ones(signal_NT), beta=beta, **numbers)[0].tolist()


@pytest.mark.parametrize(
    ("advantage", "beta", "want"),
    [
        # w = 1 + .1 (.5 / .95 - 1) = .952632; 3 w = 2.857895
        (3, 0.1, [2.857895, 3.015789, 2.794737, 3.331579]),
        (-1, 0.1, [-0.952632, -1.005263, -0.931579, -1.110526]),
        # 1 + 2 (.3 / .95 - 1) = -.368421 is cut off at 0
        (1, 2, [0.052632, 1.105263, 0, 3.210526]),
    ],
)
def test_goldens(advantage, beta, want):
    assert run(advantage, beta=beta) == pytest.approx(want, abs=1e-6)


def test_beta_zero_changes_no_bit():
    assert run(1 / 3, beta=0) == [1 / 3] * 4


def test_equal_signals_weigh_alike():
    assert run(3, beta=0.7, signal=[0.4] * 4) == pytest.approx([3] * 4, abs=1e-6)


@pytest.mark.parametrize("signal", [[0, 0, 0], [1e-8, 2e-8, 0], [-1, -2, -3]])
def test_a_mean_below_the_floor_leaves_the_advantages(signal):
    assert run(3, beta=5, signal=signal) == [3, 3, 3]


def test_the_floor_is_a_number_of_the_caller():
    assert run(3, beta=0.5, signal=[1e-8, 3e-8], floor=1e-9, eps=0) == pytest.approx([2.25, 3.75])
    assert run(3, beta=0.5, signal=[1.0, 3.0], floor=2.1) == [3, 3]


def test_eps_is_added_to_the_mean():
    # mean 2, eps 2: w = 1 + (1 / 4 - 1) = .25, and 1 + (3 / 4 - 1) = .75
    assert run(1, beta=1, signal=[1, 3], eps=2) == [0.25, 0.75]


def test_scopes_by_hand():
    # row means 2 and 6; mean of the batch (1 + 3 + 6) / 3 = 10 / 3
    signal_NT = double([1, 3], [6, 99])
    mask_NT = torch.tensor([[True, True], [True, False]])
    adv_NT = double([1, 1], [2, 7])
    row = gtpo(adv_NT, signal_NT, mask_NT, beta=1, eps=0)
    assert row.tolist() == [[0.5, 1.5], [2, 0]]
    batch = gtpo(adv_NT, signal_NT, mask_NT, beta=1, eps=0, scope="batch")
    assert batch[0].tolist() == pytest.approx([0.3, 0.9])
    assert batch[1].tolist() == pytest.approx([3.6, 0])  # 2 * 6 / (10 / 3)


def test_scopes_agree_on_one_row():
    for beta in (0.1, 2):
        assert run(3, beta=beta) == run(3, beta=beta, scope="batch")


@pytest.mark.parametrize("scope", ["completion", "batch"])
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, 1e6])
def test_what_is_not_sampled_does_not_leak(scope, rubbish):
    generator = torch.Generator().manual_seed(0)
    signal_NT = torch.rand(3, 5, generator=generator, dtype=torch.float64)
    adv_NT = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    mask_NT = torch.rand(3, 5, generator=generator) > 0.4
    mask_NT[2] = False
    want = gtpo(adv_NT, signal_NT, mask_NT, beta=0.5, scope=scope)
    dirty = adv_NT.where(mask_NT, rubbish).requires_grad_()
    got = gtpo(dirty, signal_NT.where(mask_NT, rubbish), mask_NT, beta=0.5, scope=scope)
    assert torch.equal(got, want)
    assert (got[~mask_NT] == 0).all()
    got.sum().backward()
    assert dirty.grad.isfinite().all()
    assert (dirty.grad[~mask_NT] == 0).all()


@pytest.mark.parametrize("scope", ["completion", "batch"])
def test_an_episode_keeps_its_weights_wherever_it_stands(scope):
    generator = torch.Generator().manual_seed(1)
    signal_NT = torch.rand(4, 6, generator=generator, dtype=torch.float64)
    adv_NT = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    mask_NT = torch.rand(4, 6, generator=generator) > 0.3
    want = gtpo(adv_NT, signal_NT, mask_NT, beta=0.5, scope=scope)
    order = torch.tensor([2, 0, 3, 1])
    got = gtpo(adv_NT[order], signal_NT[order], mask_NT[order], beta=0.5, scope=scope)
    torch.testing.assert_close(got, want[order], rtol=0, atol=1e-14)


def test_an_episode_is_alone_under_completion():
    signal_NT, adv_NT = double([1, 3], [5, 2]), double([1, 1], [1, 1])
    changed = double([1, 3], [500, 0])
    one = gtpo(adv_NT, signal_NT, ones(adv_NT), beta=1)
    other = gtpo(adv_NT, changed, ones(adv_NT), beta=1)
    assert torch.equal(one[0], other[0])


def test_nothing_flows_back_through_the_weights():
    signal_NT = double(H).requires_grad_()
    adv_NT = double([1, 1, 1, 1]).requires_grad_()
    gtpo(adv_NT, signal_NT, ones(adv_NT), beta=0.1).sum().backward()
    assert signal_NT.grad is None
    assert adv_NT.grad[0, 0].item() == pytest.approx(0.952632, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(-5, 5)), min_size=1, max_size=8), st.floats(0, 9)
)
def test_no_weight_changes_a_sign_and_their_mean_is_at_least_one(tokens, beta):
    signal_NT, adv_NT = (double(column) for column in zip(*tokens, strict=True))
    got = gtpo(adv_NT, signal_NT, ones(adv_NT), beta=beta)
    assert (got * adv_NT >= 0).all()
    weight = gtpo(torch.ones_like(adv_NT), signal_NT, ones(adv_NT), beta=beta)
    assert weight.mean().item() >= 1 - 2 * beta  # eps moves it where the mean is next to nothing
    if signal_NT.mean() > 1e-3:
        assert weight.mean().item() >= 1 - beta * 1e-4


def test_half_precision_is_weighed_in_full():
    adv_NT = torch.ones(1, 3, dtype=torch.bfloat16)
    signal_NT = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.bfloat16)
    got = gtpo(adv_NT, signal_NT, ones(adv_NT), beta=0.01)
    assert got.dtype == torch.float32
    assert got[0].tolist() == pytest.approx([0.995, 1, 1.005], abs=1e-6)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"beta": -0.1}, r"^beta is -0\.1; it must be a finite number, 0 or more\.$"),
        ({"beta": math.nan}, r"^beta is nan; it must be a finite"),
        ({"beta": math.inf}, r"^beta is inf; it must be a finite"),
        (
            {"beta": 1, "scope": "prompt"},
            r"^scope is 'prompt'; choose one of completion, batch\.$",
        ),
    ],
)
def test_bad_numbers_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        run(1, **numbers)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_signal_that_is_not_finite_is_refused_where_it_counts(bad):
    with pytest.raises(ValueError, match=r"^a signal on a sampled token is not finite"):
        run(1, beta=0.1, signal=[1, bad])


def test_bad_tensors_are_refused():
    signal_NT = double(H)
    with pytest.raises(ValueError, match=r"^mask_NT has dtype torch\.float64"):
        gtpo(signal_NT, signal_NT, signal_NT, beta=1)
    with pytest.raises(ValueError, match=r"^shapes differ"):
        gtpo(signal_NT[:, :1], signal_NT, ones(signal_NT), beta=1)
    with pytest.raises(ValueError, match=r"^wrong rank"):
        gtpo(signal_NT[0], signal_NT[0], ones(signal_NT[0]), beta=1)


def test_the_mean_of_no_tokens_is_zero():
    empty_NT = torch.zeros(2, 3, dtype=torch.bool)
    values_NT = torch.full((2, 3), math.nan)
    for scope in ("completion", "batch"):
        mean_NT = scope_mean(values_NT, empty_NT, scope=scope)
        assert (mean_NT.shape, mean_NT.abs().sum().item()) == ((2, 3), 0)


@pytest.mark.parametrize("scope", ["completion", "batch"])
def test_episodes_without_tokens(scope):
    none_NT = torch.zeros(2, 0)
    assert gtpo(none_NT, none_NT, ones(none_NT), beta=1, scope=scope).shape == (2, 0)
