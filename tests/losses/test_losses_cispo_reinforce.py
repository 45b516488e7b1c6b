import math

import pytest
import torch
from ratio_cases import MASK, gradient, random_rows

from rltune.losses.cispo import cispo_loss
from rltune.losses.policy import ppo_loss
from rltune.losses.reduce import AGGREGATIONS
from rltune.losses.reinforce import reinforce_loss

CLIPS = {"clip_low": 0.2, "clip_high": 0.3}


def row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def cispo(logp, old_logp, advantages, *, mask, **changes):
    return cispo_loss(logp, old_logp, advantages, mask_BT=mask, **{**CLIPS, **changes})


def reinforce(logp, old_logp, advantages, *, mask):
    return reinforce_loss(logp, advantages, mask_BT=mask)


LOSSES = pytest.mark.parametrize("loss_of", [cispo, reinforce])


@pytest.mark.parametrize(
    ("ratio", "weight", "n_clipped"),
    [
        pytest.param(1.1, 1.1, 0, id="inside"),
        pytest.param(2.0, 1.3, 1, id="above"),
        pytest.param(0.5, 0.8, 1, id="below"),
    ],
)
@pytest.mark.parametrize("advantage", [2.0, -1.0])
def test_cispo_by_hand(ratio, weight, n_clipped, advantage):
    # L = -w A logp at logp = -1, dL / dlogp = -w A: also a clipped token keeps a gradient.
    logp = row(-1.0).requires_grad_()
    result = cispo(logp, row(-1 - math.log(ratio)), row(advantage), mask=torch.tensor([[True]]))
    result.per_token_BT.sum().backward()
    assert result.per_token_BT.item() == pytest.approx(weight * advantage)
    assert logp.grad.item() == pytest.approx(-weight * advantage)
    assert result.sums["actor/pg_clipfrac"].item() == n_clipped
    assert result.sums["actor/ppo_kl"].item() == pytest.approx(-math.log(ratio))


def test_a_clip_low_of_one_is_no_lower_bound():
    logp, old_logp = row(-5.0).requires_grad_(), row(-1.0)
    result = cispo(logp, old_logp, row(-1.0), mask=torch.tensor([[True]]), clip_low=1.0)
    result.per_token_BT.sum().backward()
    assert logp.grad.item() == pytest.approx(math.exp(-4))


def test_reinforce_by_hand():
    # -A logp: -(2)(-1), -(-.5)(-3)
    logp = row(-1.0, -2.0, -3.0).requires_grad_()
    mask = torch.tensor([[True, False, True]])
    result = reinforce_loss(logp, row(2.0, 7.0, -0.5), mask_BT=mask)
    result.per_token_BT.sum().backward()
    assert torch.equal(result.per_token_BT, row(2.0, 0.0, -1.5))
    assert torch.equal(logp.grad, row(-2.0, 0.0, 0.5))
    assert result.sums == {}


@LOSSES
def test_on_policy_the_gradient_is_that_of_ppo(loss_of):
    logp, _, advantages = random_rows()

    def ppo(x, rows):
        return ppo_loss(x, logp, advantages, mask_BT=MASK, dual_clip=None, **CLIPS)

    got = gradient(lambda x, rows: loss_of(x, logp, advantages, mask=MASK), logp)
    torch.testing.assert_close(got, gradient(ppo, logp))


def test_gradcheck_reinforce():
    logp, _, advantages = random_rows()

    def total(x):
        return reinforce_loss(x, advantages, mask_BT=MASK).per_token_BT.sum()

    assert torch.autograd.gradcheck(total, logp.requires_grad_())


def test_gradcheck_cispo_where_every_weight_is_a_bound():
    # Inside the bounds the value moves with the weight, which the gradient leaves out on purpose.
    logp, _, advantages = random_rows()
    old_logp = logp + torch.where(advantages > 0, 2.0, -2.0)

    def total(x):
        return cispo(x, old_logp, advantages, mask=MASK).per_token_BT.sum()

    assert torch.autograd.gradcheck(total, logp.requires_grad_())


def test_cispo_gradient_is_minus_the_weight_times_the_advantage():
    logp, old_logp, advantages = random_rows()
    weight = (logp - old_logp).exp().clamp(0.8, 1.3)
    got = gradient(lambda x, rows: cispo(x, old_logp, advantages, mask=MASK), logp)
    torch.testing.assert_close(got, (-weight * advantages / MASK.sum()).where(MASK, 0))


@LOSSES
@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("n_micro", [2, 4])
def test_any_micro_batch_split_gives_the_same_gradient(loss_of, mode, n_micro):
    logp, old_logp, advantages = random_rows()

    def loss(x, rows):
        return loss_of(x, old_logp[rows], advantages[rows], mask=MASK[rows])

    whole = gradient(loss, logp, mode=mode)
    assert whole.abs().sum() > 0
    split = gradient(loss, logp, mode=mode, n_micro=n_micro)
    torch.testing.assert_close(split, whole, rtol=1e-12, atol=1e-12)


@LOSSES
@pytest.mark.parametrize("rubbish", [math.nan, 1e6, -math.inf])
def test_masked_positions_reach_neither_loss_nor_gradient(loss_of, rubbish):
    clean = torch.stack(random_rows())
    outcomes = []
    for fill in (0.0, rubbish):
        logp, old_logp, advantages = clean.where(MASK, fill)
        logp.requires_grad_()
        result = loss_of(logp, old_logp, advantages, mask=MASK)
        result.per_token_BT.sum().backward()
        outcomes.append((result.per_token_BT.detach(), logp.grad, *result.sums.values()))
    for zero_filled, dirty in zip(*outcomes, strict=True):
        assert torch.equal(zero_filled, dirty)


@LOSSES
def test_rows_are_independent(loss_of):
    rows = random_rows()
    order = torch.tensor([2, 0, 3, 1])
    loss = loss_of(*rows, mask=MASK).per_token_BT
    shuffled = loss_of(*(x[order] for x in rows), mask=MASK[order]).per_token_BT
    assert torch.equal(shuffled, loss[order])


@LOSSES
def test_only_the_policy_gets_a_gradient(loss_of):
    logp, old_logp, advantages = random_rows()
    result = loss_of(logp, old_logp.requires_grad_(), advantages.requires_grad_(), mask=MASK)
    assert not result.per_token_BT.requires_grad


@LOSSES
def test_half_precision_is_computed_in_float32(loss_of):
    half = torch.full((1, 1), -12.0, dtype=torch.float16)
    result = loss_of(half, half, half, mask=torch.tensor([[True]]))
    assert result.per_token_BT.dtype == torch.float32
    assert result.per_token_BT.item() == -144


def test_the_weight_of_cispo_stays_finite():
    one = torch.tensor([[True]])
    result = cispo(row(-1.0), row(-1001.0), row(1.0), mask=one, clip_high=math.inf)
    assert result.per_token_BT.item() == pytest.approx(math.exp(20))


@LOSSES
def test_refusals(loss_of):
    rows = random_rows()
    with pytest.raises(ValueError, match=r"^mask_BT has dtype torch\.int64; a mask must be"):
        loss_of(*rows, mask=MASK.long())
    with pytest.raises(ValueError, match=r"^shapes differ: logp_BT \(4, 7\),.* mask_BT \(2, 7\)"):
        loss_of(*rows, mask=MASK[:2])


@pytest.mark.parametrize("changes", [{"clip_low": 1.1}, {"clip_low": -0.1}, {"clip_high": -0.1}])
def test_cispo_refuses_bounds(changes):
    with pytest.raises(
        ValueError, match=r"^clip_low is .* and clip_high is .*; clip_low must lie in \[0, 1\]"
    ):
        cispo(*random_rows(), mask=MASK, **changes)
