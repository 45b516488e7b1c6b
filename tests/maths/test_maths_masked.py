import math

import pytest
import torch

from rltune.maths.checks import at_least_float32, require_mask, require_same_shape
from rltune.maths.masked import masked_mean, masked_sum, masked_whiten

NAN = math.nan
X = torch.tensor([[1.0, 2.0, NAN], [5.0, NAN, -NAN]])
KEEP = torch.tensor([[True, True, False], [True, False, False]])


def test_sum_drops_nan_outside_the_mask():
    assert masked_sum(X, KEEP).item() == 8  # 1 + 2 + 5
    assert masked_sum(X, KEEP, dim=1).tolist() == [3, 5]
    assert masked_sum(X, KEEP, dim=0).tolist() == [6, 2, 0]


def test_mean_divides_by_the_kept_count():
    assert masked_mean(X, KEEP).item() == pytest.approx(8 / 3)


def test_mean_of_nothing_is_zero():
    assert masked_mean(X, torch.zeros_like(KEEP)).item() == 0


def test_whiten_by_hand():
    # mean 8/3; deviations -5/3, -2/3, 7/3; var = (25 + 4 + 49) / 9 / (3 - 1) = 13/3
    white = masked_whiten(X.double(), KEEP, eps=0.0)
    scale = math.sqrt(13 / 3)
    assert white[KEEP].tolist() == pytest.approx([-5 / 3 / scale, -2 / 3 / scale, 7 / 3 / scale])
    assert white[~KEEP].tolist() == [0, 0, 0]


def test_whiten_has_mean_zero_and_unbiased_variance_one():
    x = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    keep = torch.arange(9).expand(4, 9) < torch.tensor([[9], [2], [0], [5]])
    kept = masked_whiten(3 * x + 7, keep)[keep]
    assert kept.mean().item() == pytest.approx(0, abs=1e-12)
    assert kept.var().item() == pytest.approx(1, abs=1e-6)


def test_whiten_adds_eps_to_the_variance():
    # deviations -1, 1; var = 2; eps 2 -> divide by sqrt(4) = 2
    x, keep = torch.tensor([0.0, 2.0]), torch.tensor([True, True])
    assert masked_whiten(x, keep, eps=2.0).tolist() == [-0.5, 0.5]


@pytest.mark.parametrize("kept", [0, 1])
def test_whiten_with_fewer_than_two_places_only_centres(kept):
    keep = torch.arange(3) < kept
    assert masked_whiten(torch.tensor([4.0, NAN, NAN]), keep, eps=0.0).tolist() == [0, 0, 0]


def test_whiten_of_equal_values_is_zero():
    assert masked_whiten(torch.full((3,), 2.0), torch.ones(3, dtype=torch.bool)).tolist() == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("rubbish", [NAN, 1e6, math.inf])
def test_case_b7_whitening_ignores_what_is_outside_the_mask(rubbish):
    clean = masked_whiten(X.where(KEEP, 0), KEEP)
    assert torch.equal(masked_whiten(X.where(KEEP, rubbish), KEEP), clean)


def test_shapes_are_never_broadcast():
    with pytest.raises(ValueError, match=r"^shapes differ: x \(2, 3\), mask \(2,\)\. All must be"):
        masked_sum(X, torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^wrong rank: a \(2, 3\)\. Expected 1 dimension"):
        require_same_shape(ndim=1, a=X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_only_boolean_masks(dtype):
    with pytest.raises(ValueError, match=rf"^m has dtype {dtype}; a mask must be torch\.bool"):
        require_mask(torch.ones(2, dtype=dtype), name="m")


def test_half_becomes_float32_and_double_stays():
    dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    got = [at_least_float32(torch.zeros(1, dtype=dtype)).dtype for dtype in dtypes]
    assert got == [torch.float32] * 3 + [torch.float64]
