import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.grpo import broadcast, grpo
from rltune.losses.entropy import logprobs_of
from rltune.losses.kl import kl_penalty
from rltune.losses.policy import ppo_loss
from rltune.losses.reduce import AGGREGATIONS, aggregate, count_trained

CLIPS = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}


def row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def loss_of(ratio, advantage, **changes):
    return ppo_loss(
        row(math.log(ratio)),
        row(0.0),
        row(advantage),
        mask_BT=torch.ones(1, 1, dtype=torch.bool),
        **{**CLIPS, **changes},
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped", "lower"),
    [
        pytest.param(1.1, 2.0, -2.2, 0, 0, id="inside"),  # -2 * 1.1
        pytest.param(1.5, 2.0, -2.56, 1, 0, id="too-good"),  # -2 * 1.28 > -2 * 1.5
        pytest.param(0.5, 2.0, -1.0, 0, 0, id="good-and-falling"),  # -2 * .5 > -2 * .8
        pytest.param(1.5, -2.0, 3.0, 0, 0, id="bad-and-rising"),  # 2 * 1.5 > 2 * 1.28
        pytest.param(0.5, -2.0, 1.6, 1, 0, id="bad-enough"),  # 2 * .8 > 2 * .5
        pytest.param(5.0, -2.0, 6.0, 0, 1, id="dual-clip"),  # min(2 * 5, 2 * 3)
        pytest.param(5.0, 2.0, -2.56, 1, 0, id="dual-clip-only-below-zero"),
        pytest.param(1.5, 0.0, 0.0, 0, 0, id="no-advantage"),
    ],
)
def test_by_hand(ratio, advantage, loss, clipped, lower):
    result = loss_of(ratio, advantage)
    assert result.per_token_BT.item() == pytest.approx(loss)
    assert result.sums["actor/pg_clipfrac"].item() == clipped
    assert result.sums["actor/pg_clipfrac_lower"].item() == lower
    assert result.sums["actor/ppo_kl"].item() == pytest.approx(-math.log(ratio))


def test_dual_clip_can_be_off():
    result = loss_of(5.0, -2.0, dual_clip=None)
    assert result.per_token_BT.item() == pytest.approx(10)
    assert result.sums["actor/pg_clipfrac_lower"].item() == 0


@pytest.mark.parametrize("log_ratio", [-1000.0, 1000.0])
def test_the_ratio_stays_finite(log_ratio):
    logp = row(log_ratio).requires_grad_()
    mask = torch.ones(1, 1, dtype=torch.bool)
    result = ppo_loss(logp, row(0.0), row(-1.0), mask_BT=mask, **{**CLIPS, "dual_clip": None})
    result.per_token_BT.sum().backward()
    assert result.per_token_BT.item() == pytest.approx(
        max(math.exp(math.copysign(20, log_ratio)), 0.8)
    )
    assert logp.grad.item() == 0


def test_on_policy_gradient_is_the_plain_policy_gradient():
    # d(-A exp(logp - old)) / dlogp = -A at ratio 1
    logp = row(-1.0, -2.0, -3.0).requires_grad_()
    advantages = row(2.0, -0.5, 0.0)
    mask = torch.ones(1, 3, dtype=torch.bool)
    ppo_loss(logp, logp.detach(), advantages, mask_BT=mask, **CLIPS).per_token_BT.sum().backward()
    torch.testing.assert_close(logp.grad, -advantages)


def test_gradcheck_off_policy():
    generator = torch.Generator().manual_seed(0)
    logp, old_logp, advantages = torch.randn(3, 2, 6, dtype=torch.float64, generator=generator)
    mask = torch.rand(2, 6, generator=generator) < 0.7

    def total(x):
        return ppo_loss(x, old_logp, advantages, mask_BT=mask, **CLIPS).per_token_BT.sum()

    assert torch.autograd.gradcheck(total, logp.requires_grad_())


@pytest.mark.parametrize("rubbish", [math.nan, 1e6, -math.inf])
def test_case_b7_masked_positions_reach_neither_loss_nor_gradient(rubbish):
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(3, 2, 6, generator=generator)
    mask = torch.tensor([[1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 1, 0]], dtype=torch.bool)
    outcomes = []
    for fill in (0.0, rubbish):
        logp, old_logp, advantages = clean.where(mask, fill)
        logp.requires_grad_()
        result = ppo_loss(logp, old_logp, advantages, mask_BT=mask, **CLIPS)
        result.per_token_BT.sum().backward()
        outcomes.append((result.per_token_BT.detach(), logp.grad, *result.sums.values()))
    for zero_filled, dirty in zip(*outcomes, strict=True):
        assert torch.equal(zero_filled, dirty)


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_rows_are_independent(seed):
    generator = torch.Generator().manual_seed(seed)
    logp, old_logp, advantages = torch.randn(3, 4, 3, generator=generator)
    mask = torch.rand(4, 3, generator=generator) < 0.7
    order = torch.randperm(4, generator=generator)
    loss = ppo_loss(logp, old_logp, advantages, mask_BT=mask, **CLIPS).per_token_BT
    shuffled = ppo_loss(
        logp[order], old_logp[order], advantages[order], mask_BT=mask[order], **CLIPS
    ).per_token_BT
    assert torch.equal(shuffled, loss[order])


def test_case_c6_gradient_reaches_the_actions_and_never_the_observations():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 7, generator=generator, requires_grad=True)
    ids = torch.randint(7, (2, 5), generator=generator)
    action_mask = torch.tensor([[0, 1, 1, 0, 0], [0, 1, 0, 0, 1]], dtype=torch.bool)
    logp = logprobs_of(logits, ids, temperature=1.0)
    advantages = broadcast(torch.tensor([1.0, -0.5]), action_mask)
    loss = ppo_loss(logp, logp.detach(), advantages, mask_BT=action_mask, **CLIPS).per_token_BT
    numbers = {"n_tokens": 4, "n_sequences": 2, "mini_batch_size": 2, "sum_norm": 1.0}
    aggregate(loss, action_mask, mode="token-mean", **numbers).backward()
    assert (logits.grad[~action_mask] == 0).all()
    assert (logits.grad[action_mask].abs().sum(-1) > 1e-3).all()


def test_case_c7_advantages_in_the_place_of_the_mask_are_refused():
    ones = torch.ones(1, 2)
    with pytest.raises(
        ValueError, match=r"^mask_BT has dtype torch\.float32; a mask must be torch\."
    ):
        ppo_loss(ones, ones, ones, mask_BT=ones, **CLIPS)
    with pytest.raises(TypeError, match="positional"):
        ppo_loss(ones, ones, ones, ones.bool(), **CLIPS)


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_case_b1_groups_without_spread_count_but_do_not_push(mode):
    # Rows 0-3 all earn 1. Their policy gradient is exactly 0; they stay in the denominators
    # (8 rows, 16 tokens); only the KL term moves them, when beta > 0.
    rewards = torch.tensor([1.0, 1, 1, 1, 0, 1, 0, 1], dtype=torch.float64)
    mask = torch.ones(8, 2, dtype=torch.bool)
    advantages = broadcast(grpo(rewards, torch.tensor([0] * 4 + [1] * 4)), mask)
    counts = count_trained(mask)
    numbers = {"mode": mode, "n_tokens": 16, "n_sequences": 8, "mini_batch_size": 10}
    numbers["sum_norm"] = 2.0
    assert (counts.n_tokens, counts.n_sequences) == (16, 8)
    weight = {  # of one token, by hand
        "token-mean": 1 / 16,
        "seq-mean-token-sum": 1 / 8,
        "seq-mean-token-mean": 1 / 2 / 8,
        "seq-mean-token-sum-norm": 1 / 10 / 2,
    }[mode]
    for beta in (0.0, 0.1):
        logp = torch.full((8, 2), -1.0, dtype=torch.float64, requires_grad=True)
        pg = ppo_loss(logp, logp.detach(), advantages, mask_BT=mask, **CLIPS).per_token_BT
        kl = kl_penalty(logp, logp.detach() - 0.5, kind="k2")
        (aggregate(pg, mask, **numbers) + beta * aggregate(kl, mask, **numbers)).backward()
        want = weight * (-advantages + beta * 0.5)  # d k2 / d logp = d = .5
        torch.testing.assert_close(logp.grad, want, rtol=1e-9, atol=0)
        assert (logp.grad[:4] == 0).all() == (beta == 0)


def test_half_precision_inputs_are_computed_in_float32():
    half = torch.full((1, 1), 12.0, dtype=torch.float16)
    mask = torch.ones(1, 1, dtype=torch.bool)
    loss = ppo_loss(half, -half * 0, -half, mask_BT=mask, **{**CLIPS, "dual_clip": None})
    assert loss.per_token_BT.item() == pytest.approx(12 * math.exp(12), rel=1e-5)


def test_refusals():
    for changes, message in [
        ({"clip_low": 1.0}, r"^clip_low is 1\.0; it must lie in \[0, 1\)\.$"),
        ({"clip_high": -0.1}, r"^clip_high is -0\.1; it must be >= 0\.$"),
        (
            {"dual_clip": 1.0},
            r"^dual_clip is 1\.0; it must be above 1, or None to switch it off\.$",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            loss_of(1.0, 1.0, **changes)
    one, two = torch.zeros(1, 1), torch.zeros(2, 1)
    with pytest.raises(
        ValueError, match=r"^shapes differ: logp_BT \(1, 1\), old_logp_BT \(2, 1\),"
    ):
        ppo_loss(one, two, one, mask_BT=one.bool(), **CLIPS)
