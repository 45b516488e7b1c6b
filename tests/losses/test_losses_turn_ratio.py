import math

import pytest
import torch
from ratio_cases import MASK, TURNS, gradient, random_rows

from rltune.losses.policy import ppo_loss
from rltune.losses.reduce import AGGREGATIONS
from rltune.losses.turn_ratio import turn_loss
from rltune.maths.turns import broadcast_turns

WIDE = {"mask_BT": MASK, "turn_ids_BT": TURNS, "clip_low": 0.9, "clip_high": 1e6}
NARROW = {"mask_BT": MASK, "turn_ids_BT": TURNS, "clip_low": 0.2, "clip_high": 0.3}
LN2 = math.log(2)


def row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def one_row(logp, advantages, turns, *, clip_low=0.2, clip_high=0.3, scale=None):
    turn_ids = torch.tensor([turns])
    return turn_loss(
        row(*logp),
        torch.zeros(1, len(logp), dtype=torch.float64),
        row(*advantages),
        mask_BT=turn_ids >= 0,
        turn_ids_BT=turn_ids,
        clip_low=clip_low,
        clip_high=clip_high,
        clip_scale_BT=scale,
    )


def test_by_hand():
    # Turn 0: ratios 1 and 4, geometric mean 2, clipped at 1.3: max(-3 * 2, -3 * 1.3) = -3.9.
    # Turn 1: ratio 1/2 with A = -1: max(.5, .8) = .8, clipped. Turn 2: 2 with A = -1: max(2, 1.3).
    # ppo_kl: -(0 + 2 ln 2 - ln 2 + ln 2)
    result = one_row((0, 2 * LN2, 7, -LN2, LN2), (3, 3, 9, -1, -1), (0, 0, -1, 1, 2))
    torch.testing.assert_close(result.per_token_BT, row(-3.9, -3.9, 0, 0.8, 2))
    assert result.sums["actor/pg_clipfrac"].item() == 3
    assert result.sums["actor/ppo_kl"].item() == pytest.approx(-2 * LN2)


def test_a_masked_token_takes_no_part_in_its_turn():
    # Log-ratios ln 2 and (masked) ln 16 of one turn: the ratio is 2, not 2^(5/2) or 2^(1/2).
    result = turn_loss(
        row(LN2, 4 * LN2),
        row(0.0, 0.0),
        row(-1.0, -1.0),
        mask_BT=torch.tensor([[True, False]]),
        turn_ids_BT=torch.tensor([[0, 0]]),
        clip_low=0.2,
        clip_high=0.3,
    )
    torch.testing.assert_close(result.per_token_BT, row(2, 0))


def test_turns_with_equal_advantages_stay_two_turns():
    # The released code guesses a turn from equal neighbouring advantages: one ratio of 2 here.
    apart = one_row((0, 2 * LN2), (-1, -1), (0, 1))
    torch.testing.assert_close(apart.per_token_BT, row(1, 4))
    together = one_row((0, 2 * LN2), (-1, -1), (0, 0))
    torch.testing.assert_close(together.per_token_BT, row(2, 2))


@pytest.mark.parametrize(
    ("c", "ratio", "advantage", "want"),
    [
        (1.228478, 2.0, 1.0, -(1 + 1.228478 * 0.3)),
        (0.771522, 2.0, 1.0, -(1 + 0.771522 * 0.3)),
        (1.228478, 0.5, -1.0, 1 - 1.228478 * 0.2),
        (0.771522, 0.5, -1.0, 1 - 0.771522 * 0.2),
        (0.0, 2.0, 1.0, -1.0),  # no room at all
    ],
)
def test_the_clip_scale_moves_both_bounds(c, ratio, advantage, want):
    # The other token has scale 1, and its own bound.
    scale = row(c, 1.0)
    got = one_row((math.log(ratio),) * 2, (advantage,) * 2, (0, 1), scale=scale)
    bound = -1.3 if advantage > 0 else 0.8
    torch.testing.assert_close(got.per_token_BT, row(want, bound))


def test_a_clip_scale_of_one_changes_nothing():
    logp, old_logp, advantages = random_rows()
    ones = torch.ones_like(logp)
    scaled = turn_loss(logp, old_logp, advantages, clip_scale_BT=ones, **NARROW).per_token_BT
    plain = turn_loss(logp, old_logp, advantages, **NARROW).per_token_BT
    assert torch.equal(scaled, plain)


def test_one_token_per_turn_is_ppo_without_dual_clip():
    logp, old_logp, advantages = random_rows()
    turn_ids = torch.arange(7).expand(4, 7)
    clips = {"mask_BT": MASK, "clip_low": 0.2, "clip_high": 0.3}

    def by_turn(x, rows):
        return turn_loss(
            x, old_logp[rows], advantages[rows], turn_ids_BT=turn_ids[rows], **clips_of(rows)
        )

    def by_token(x, rows):
        return ppo_loss(x, old_logp[rows], advantages[rows], dual_clip=None, **clips_of(rows))

    def clips_of(rows):
        return {**clips, "mask_BT": MASK[rows]}

    everything = torch.arange(4)
    torch.testing.assert_close(
        by_turn(logp, everything).per_token_BT, by_token(logp, everything).per_token_BT
    )
    torch.testing.assert_close(gradient(by_turn, logp), gradient(by_token, logp))


def turn_constant(seed):
    """Return advantages that are constant in each turn."""
    values = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return broadcast_turns(values, TURNS)


def eq_10(logp, old_logp, advantages):
    """Return the sum of -A s_k over tokens with s_k written out, no stop gradient."""
    total = logp.new_zeros(())
    for i in range(len(TURNS)):
        for k in range(3):
            tokens = TURNS[i] == k
            if tokens.any():
                s = (logp[i][tokens] - old_logp[i][tokens]).mean().exp()
                total = total - (advantages[i][tokens] * s).sum()
    return total


def test_the_gradient_is_that_of_the_geometric_mean_itself():
    logp, old_logp, _ = random_rows()
    advantages = turn_constant(1)
    x = logp.clone().requires_grad_()
    eq_10(x, old_logp, advantages).backward()
    y = logp.clone().requires_grad_()
    turn_loss(y, old_logp, advantages, **WIDE).per_token_BT.sum().backward()
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("clips", [WIDE, NARROW])
def test_gradcheck_with_advantages_of_turns(clips):
    logp, old_logp, _ = random_rows()
    scale = broadcast_turns(torch.linspace(0.7, 1.3, 12, dtype=torch.float64).view(4, 3), TURNS)

    def total(x):
        return turn_loss(
            x, old_logp, turn_constant(1), clip_scale_BT=scale, **clips
        ).per_token_BT.sum()

    assert torch.autograd.gradcheck(total, logp.requires_grad_())


def test_a_shaped_advantage_pushes_its_own_token():
    # dL_t / dlogp_t = -A_t s, and no other token's: here s = 1
    logp, _, advantages = random_rows()

    def loss(x, rows):
        return turn_loss(x, logp, advantages, **WIDE)

    got = gradient(loss, logp)
    torch.testing.assert_close(got, (-advantages / MASK.sum()).where(MASK, 0))


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("n_micro", [2, 4])
def test_any_micro_batch_split_gives_the_same_gradient(mode, n_micro):
    logp, old_logp, advantages = random_rows()
    clips = {"clip_low": 0.2, "clip_high": 0.3}

    def loss(x, rows):
        return turn_loss(
            x,
            old_logp[rows],
            advantages[rows],
            mask_BT=MASK[rows],
            turn_ids_BT=TURNS[rows],
            **clips,
        )

    whole = gradient(loss, logp, mode=mode)
    assert whole.abs().sum() > 0
    split = gradient(loss, logp, mode=mode, n_micro=n_micro)
    torch.testing.assert_close(split, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rubbish", [math.nan, 1e6, -math.inf])
def test_masked_positions_reach_neither_loss_nor_gradient(rubbish):
    # Also where a turn index stands outside the mask: a row dropped by a filter keeps its turns.
    clean = torch.stack([*random_rows(), torch.ones(4, 7, dtype=torch.float64)]).float()
    mask = MASK.clone()
    mask[1] = False
    mask[0, 1] = False
    outcomes = []
    for fill in (0.0, rubbish):
        logp, old_logp, advantages, scale = clean.where(mask, fill)
        logp.requires_grad_()
        result = turn_loss(
            logp,
            old_logp,
            advantages,
            clip_scale_BT=scale,
            **{**NARROW, "mask_BT": mask},
        )
        result.per_token_BT.sum().backward()
        assert (result.per_token_BT[~mask] == 0).all()
        outcomes.append((result.per_token_BT.detach(), logp.grad, *result.sums.values()))
    for zero_filled, dirty in zip(*outcomes, strict=True):
        assert torch.equal(zero_filled, dirty)


def test_rows_are_independent():
    rows = random_rows()
    order = torch.tensor([2, 0, 3, 1])
    loss = turn_loss(*rows, **NARROW).per_token_BT
    moved = {**NARROW, "mask_BT": MASK[order], "turn_ids_BT": TURNS[order]}
    shuffled = turn_loss(*(x[order] for x in rows), **moved).per_token_BT
    assert torch.equal(shuffled, loss[order])


@pytest.mark.parametrize("log_ratio", [-1000.0, 1000.0])
def test_the_ratio_stays_finite(log_ratio):
    logp = row(log_ratio).requires_grad_()
    turn_ids = torch.zeros(1, 1, dtype=torch.int64)
    result = turn_loss(
        logp,
        row(0.0),
        row(-1.0),
        mask_BT=turn_ids == 0,
        turn_ids_BT=turn_ids,
        clip_low=0.2,
        clip_high=0.3,
    )
    result.per_token_BT.sum().backward()
    want = max(math.exp(math.copysign(20, log_ratio)), 0.8)
    assert result.per_token_BT.item() == pytest.approx(want)
    assert result.sums["actor/ppo_kl"].item() == math.copysign(20, -log_ratio)
    assert logp.grad.item() == 0


def test_only_the_policy_gets_a_gradient():
    logp, old_logp, advantages = random_rows()
    for tensor in (old_logp, advantages):
        tensor.requires_grad_()
    scale = torch.ones_like(logp, requires_grad=True)
    loss = turn_loss(logp, old_logp, advantages, clip_scale_BT=scale, **NARROW)
    assert not loss.per_token_BT.requires_grad


def test_a_micro_batch_without_a_sampled_token_is_zero():
    nothing = {**NARROW, "mask_BT": MASK & False}
    result = turn_loss(*random_rows(), **nothing)
    assert result.per_token_BT.sum() == 0


def test_refusals():
    rows = random_rows()
    with pytest.raises(ValueError, match=r"^turn_ids_BT\[0, 2\] is -1 on a sampled token; give"):
        turn_loss(*rows, **{**NARROW, "mask_BT": torch.ones(4, 7, dtype=torch.bool)})
    with pytest.raises(ValueError, match=r"^mask_BT has dtype torch\.int64; a mask must be"):
        turn_loss(*rows, **{**NARROW, "mask_BT": MASK.long()})
    with pytest.raises(ValueError, match=r"^clip_low is 1\.0; it must lie in \[0, 1\)\.$"):
        turn_loss(*rows, **{**NARROW, "clip_low": 1.0})
    with pytest.raises(ValueError, match=r"^clip_high is -1; it must be >= 0\.$"):
        turn_loss(*rows, **{**NARROW, "clip_high": -1})
    with pytest.raises(ValueError, match=r"^shapes differ: clip_scale_BT \(4, 1\), mask_BT"):
        turn_loss(*rows, clip_scale_BT=torch.ones(4, 1), **NARROW)
    with pytest.raises(ValueError, match=r"turn_ids_BT \(4, 1\)\. All must be equal"):
        turn_loss(*rows, **{**NARROW, "turn_ids_BT": TURNS[:, :1]})
    for bad in (math.nan, math.inf, -0.5):
        scale = torch.full((4, 7), bad)
        with pytest.raises(ValueError, match=r"^clip_scale_BT\[0, 0\] is .*; a clip scale must be"):
            turn_loss(*rows, clip_scale_BT=scale, **NARROW)
