import math

import pytest
import torch
from ratio_cases import MASK, gradient, random_rows

from rltune.losses.gspo import gspo_loss
from rltune.losses.policy import ppo_loss
from rltune.losses.reduce import AGGREGATIONS

CLIPS = {"clip_low": 0.2, "clip_high": 0.3}
LN2 = math.log(2)


def test_by_hand():
    # Row 0: log-ratios 0 and 2 ln 2 have the mean ln 2: s = 2; A = 1 and -1 on the two tokens:
    # max(-2, -1.3) and max(2, 1.3). Row 1: s = 1/2: max(.5, .8). Neither sees the masked ln 16.
    logp = torch.tensor([[0, 4 * LN2, 2 * LN2], [-LN2, 4 * LN2, 4 * LN2]])
    mask = torch.tensor([[1, 0, 1], [1, 0, 0]], dtype=torch.bool)
    advantages = torch.tensor([[1.0, 5, -1], [-1, 5, 5]])
    result = gspo_loss(logp, torch.zeros(2, 3), advantages, mask_BT=mask, **CLIPS)
    want = torch.tensor([[-1.3, 0, 2], [0.8, 0, 0]])
    torch.testing.assert_close(result.per_token_BT, want)
    assert result.sums["actor/pg_clipfrac"].item() == 2
    assert result.sums["actor/ppo_kl"].item() == pytest.approx(-LN2)  # -(0 + 2 - 1) ln 2


def loss_of(old_logp, advantages, **clips):
    def loss(x, rows):
        return gspo_loss(x, old_logp[rows], advantages[rows], mask_BT=MASK[rows], **clips)

    return loss


def row_advantages():
    return torch.tensor([[1.0], [-0.5], [2.0], [-1.0]], dtype=torch.float64).expand(MASK.shape)


def test_the_gradient_is_that_of_the_published_objective():
    # (1 / B) sum_i -A_i s_i with s_i = exp(mean log-ratio), aggregated by seq-mean-token-mean
    logp, old_logp = random_rows(2)
    x = logp.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for i in range(4):
        s = (x[i] - old_logp[i])[MASK[i]].mean().exp()
        total = total - row_advantages()[i, 0] * s / 4
    total.backward()
    loss = loss_of(old_logp, row_advantages(), clip_low=0.99, clip_high=1e6)
    got = gradient(loss, logp, mode="seq-mean-token-mean")
    torch.testing.assert_close(got, x.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("clips", [CLIPS, {"clip_low": 0.99, "clip_high": 1e6}])
def test_gradcheck_with_advantages_of_rows(clips):
    logp, old_logp = random_rows(2)
    loss = loss_of(old_logp, row_advantages(), **clips)
    every = torch.arange(4)
    assert torch.autograd.gradcheck(
        lambda x: loss(x, every).per_token_BT.sum(), logp.requires_grad_()
    )


def test_rows_of_one_token_are_ppo_without_dual_clip():
    logp, old_logp, advantages = random_rows()
    mask = torch.zeros_like(MASK)
    mask[:, 2] = True
    rows = (logp, old_logp, advantages)
    got = gspo_loss(*rows, mask_BT=mask, **CLIPS)
    want = ppo_loss(*rows, mask_BT=mask, dual_clip=None, **CLIPS)
    torch.testing.assert_close(got.per_token_BT, want.per_token_BT)
    for name, value in got.sums.items():
        torch.testing.assert_close(value, want.sums[name])


def test_the_order_of_the_tokens_does_not_matter():
    logp, old_logp, advantages = random_rows()
    order = torch.tensor([3, 6, 0, 1, 5, 2, 4])
    loss = gspo_loss(logp, old_logp, advantages, mask_BT=MASK, **CLIPS).per_token_BT
    shuffled = gspo_loss(
        logp[:, order], old_logp[:, order], advantages[:, order], mask_BT=MASK[:, order], **CLIPS
    ).per_token_BT
    torch.testing.assert_close(shuffled, loss[:, order])


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("n_micro", [2, 4])
def test_any_micro_batch_split_gives_the_same_gradient(mode, n_micro):
    logp, old_logp, advantages = random_rows()
    loss = loss_of(old_logp, advantages, **CLIPS)
    whole = gradient(loss, logp, mode=mode)
    assert whole.abs().sum() > 0
    split = gradient(loss, logp, mode=mode, n_micro=n_micro)
    torch.testing.assert_close(split, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rubbish", [math.nan, 1e6, -math.inf])
def test_masked_positions_reach_neither_loss_nor_gradient(rubbish):
    clean = torch.stack(random_rows())
    outcomes = []
    for fill in (0.0, rubbish):
        logp, old_logp, advantages = clean.where(MASK, fill)
        logp.requires_grad_()
        result = gspo_loss(logp, old_logp, advantages, mask_BT=MASK, **CLIPS)
        result.per_token_BT.sum().backward()
        outcomes.append((result.per_token_BT.detach(), logp.grad, *result.sums.values()))
    for zero_filled, dirty in zip(*outcomes, strict=True):
        assert torch.equal(zero_filled, dirty)


def test_refusals():
    rows = random_rows()
    with pytest.raises(ValueError, match=r"^mask_BT has dtype torch\.float32; a mask must be"):
        gspo_loss(*rows, mask_BT=MASK.float(), **CLIPS)
    with pytest.raises(ValueError, match=r"^clip_low is 1\.5; it must lie in \[0, 1\)\.$"):
        gspo_loss(*rows, mask_BT=MASK, clip_low=1.5, clip_high=0.3)
    with pytest.raises(ValueError, match=r"^shapes differ: logp_BT \(4, 7\), old_logp_BT \(4, 1\)"):
        gspo_loss(rows[0], rows[1][:, :1], rows[2], mask_BT=MASK, **CLIPS)
