import math

import pytest
import torch

from rltune.losses.value import value_loss


def run(values, old_values, returns, *, mask=None, clip=0.5):
    rows = [torch.tensor([x], dtype=torch.float64) for x in (values, old_values, returns)]
    mask = (
        torch.ones(rows[0].shape, dtype=torch.bool) if mask is None else torch.tensor([mask]).bool()
    )
    return value_loss(*rows, mask_BT=mask, value_clip=clip)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "clipped"),
    [
        pytest.param(1.25, 1.0, 2.0, 0.28125, 0, id="inside"),  # .5 * .75^2
        pytest.param(2.0, 1.0, 2.0, 0.125, 1, id="moved-too-far"),  # clamp to 1.5: .5 * .5^2 > 0
        pytest.param(2.0, 1.0, 0.0, 2.0, 0, id="moved-away"),  # .5 * 2^2 > .5 * 1.5^2
        pytest.param(0.0, 1.0, -1.0, 1.125, 1, id="fell-too-far"),  # clamp to .5: .5 * 1.5^2
    ],
)
def test_by_hand(value, old, target, loss, clipped):
    result = run([value], [old], [target])
    assert result.per_token_BT.item() == loss
    assert result.sums["critic/vf_clipfrac"].item() == clipped


def test_gradient_is_the_error_inside_and_zero_where_clipped():
    values = torch.tensor([[1.25, 2.0]], dtype=torch.float64, requires_grad=True)
    old, returns = torch.ones_like(values), torch.full_like(values, 2.0)
    mask = torch.ones(1, 2, dtype=torch.bool)
    value_loss(values, old, returns, mask_BT=mask, value_clip=0.5).per_token_BT.sum().backward()
    assert values.grad.tolist() == [[-0.75, 0]]  # V - R


def test_gradcheck():
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 2, 5, dtype=torch.float64, generator=generator)
    mask = torch.rand(2, 5, generator=generator) < 0.7
    assert torch.autograd.gradcheck(
        lambda v: value_loss(v, old, returns, mask_BT=mask, value_clip=0.5).per_token_BT,
        values.requires_grad_(),
    )


@pytest.mark.parametrize("rubbish", [math.nan, 1e6, math.inf])
def test_case_b7_masked_positions_reach_neither_loss_nor_gradient(rubbish):
    clean = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0]], dtype=torch.bool)
    outcomes = []
    for fill in (0.0, rubbish):
        values, old, returns = clean.where(mask, fill)
        values.requires_grad_()
        result = value_loss(values, old, returns, mask_BT=mask, value_clip=0.5)
        result.per_token_BT.sum().backward()
        outcomes.append((result.per_token_BT.detach(), values.grad, *result.sums.values()))
    for zero_filled, dirty in zip(*outcomes, strict=True):
        assert torch.equal(zero_filled, dirty)


def test_refusals():
    with pytest.raises(ValueError, match=r"^value_clip is 0; it must be positive\.$"):
        run([1.0], [1.0], [1.0], clip=0)
    with pytest.raises(
        ValueError, match=r"^shapes differ: values_BT \(1, 1\), old_values_BT \(1, 2\)"
    ):
        run([1.0], [1.0, 1.0], [1.0])
