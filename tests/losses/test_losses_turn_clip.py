import doctest
import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.losses import turn_clip
from rltune.losses.turn_clip import AdaptiveTurnClipper, clip_scale_metrics


def all_of(x):
    return torch.ones_like(x, dtype=torch.bool)


def test_golden():
    # 1 + .3 (2 sigmoid(+-2) - 1) = 1 +- .3 * .761594
    ig_hat = torch.tensor([0.0, 2.0, -2.0])
    want = torch.tensor([1.0, 1.228478, 0.771522])
    torch.testing.assert_close(
        AdaptiveTurnClipper(beta=0.3)(ig_hat, all_of(ig_hat)), want, atol=5e-7, rtol=0
    )
    assert AdaptiveTurnClipper() == AdaptiveTurnClipper(beta=0.3)


def test_the_example_in_the_docstring():
    result = doctest.testmod(turn_clip)
    assert (result.failed, result.attempted) == (0, 5)


@pytest.mark.parametrize("rubbish", [math.nan, 1e6, -math.inf])
def test_a_turn_without_a_gain_has_scale_one(rubbish):
    ig_hat = torch.tensor([[1.0, rubbish], [rubbish, -1.0]])
    has_ig = torch.tensor([[True, False], [False, True]])
    scale = AdaptiveTurnClipper()(ig_hat, has_ig)
    assert torch.equal(scale[~has_ig], torch.ones(2))
    assert scale[0, 0].item() == pytest.approx(2 - scale[1, 1].item())


def test_beta_zero_is_one_everywhere():
    ig_hat = torch.tensor([5.0, -5.0])
    assert torch.equal(AdaptiveTurnClipper(beta=0.0)(ig_hat, all_of(ig_hat)), torch.ones(2))


@settings(deadline=None)
@given(st.floats(-1e6, 1e6, width=32), st.floats(0, 0.99))
def test_always_inside_the_band_and_odd_around_one(ig_hat, beta):
    pair = torch.tensor([ig_hat, -ig_hat], dtype=torch.float64)
    up, down = AdaptiveTurnClipper(beta=beta)(pair, all_of(pair)).tolist()
    assert 1 - beta - 1e-12 <= up <= 1 + beta + 1e-12
    assert up + down == pytest.approx(2)
    assert (up - 1) * ig_hat >= 0


def test_no_gradient_and_float32_from_half():
    ig_hat = torch.zeros(2, dtype=torch.float16, requires_grad=True)
    scale = AdaptiveTurnClipper()(ig_hat, all_of(ig_hat))
    assert not scale.requires_grad
    assert scale.dtype == torch.float32


def test_the_receipt_counts_turns_with_a_gain_only():
    # mean of .8 and 1.2 is 1, population std .2
    scale = torch.tensor([[0.8, 1.2, 1.0], [math.nan, 9.0, 1.0]])
    has_ig = torch.tensor([[True, True, False], [False, False, False]])
    got = clip_scale_metrics(scale, has_ig)
    assert got == {
        "ig/clip_scale_mean": pytest.approx(1.0),
        "ig/clip_scale_std": pytest.approx(0.2),
    }
    assert clip_scale_metrics(scale, has_ig & False) == {}


def test_frozen():
    with pytest.raises(FrozenInstanceError):
        AdaptiveTurnClipper().beta = 0.5


def test_refusals():
    for beta in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"^beta is .*; it must lie in \[0, 1\)\. 0 switches"):
            AdaptiveTurnClipper(beta=beta)
    clipper, x = AdaptiveTurnClipper(), torch.zeros(1, 2)
    with pytest.raises(ValueError, match=r"^has_ig has dtype torch\.float32"):
        clipper(x, x)
    with pytest.raises(ValueError, match=r"^shapes differ: ig_hat \(1, 2\), has_ig \(2,\)\."):
        clipper(x, torch.tensor([True, True]))
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=r"^ig_hat\[0, 1\] is not finite; set has_ig to False"):
            clipper(torch.tensor([[0.0, bad]]), all_of(x))
