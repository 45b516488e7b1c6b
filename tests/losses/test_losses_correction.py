import math

import pytest
import torch

from rltune.losses.correction import CORRECTIONS, rollout_diagnostics, rollout_weights, weigh
from rltune.losses.policy import PolicyLoss

ALL = torch.tensor([[True, True, True]])
# Golden: the weights .4, .8 and 6
ROLLOUT = torch.tensor([[-1.0, -2.0, -3.0]])
OLD = ROLLOUT + torch.tensor([[0.4, 0.8, 6.0]]).log()


@pytest.mark.parametrize(
    ("kind", "want"),
    [("none", [1.0, 1.0, 1.0]), ("tis", [0.4, 0.8, 2.0]), ("icepop", [0.0, 0.8, 0.0])],
)
def test_golden(kind, want):
    weights = rollout_weights(OLD, ROLLOUT, ALL, kind=kind)
    torch.testing.assert_close(weights, torch.tensor([want]))


def test_there_is_a_golden_for_every_kind():
    assert CORRECTIONS == ("none", "tis", "icepop")


def test_the_numbers_are_arguments():
    tis = rollout_weights(OLD, ROLLOUT, ALL, kind="tis", cap=1.0)
    torch.testing.assert_close(tis, torch.tensor([[0.4, 0.8, 1.0]]))
    icepop = rollout_weights(OLD, ROLLOUT, ALL, kind="icepop", band=(0.3, 7.0))
    torch.testing.assert_close(icepop, torch.tensor([[0.4, 0.8, 6.0]]))
    tis = rollout_weights(OLD, ROLLOUT, ALL, kind="tis", cap=9.0, log_ratio_limit=math.log(3))
    torch.testing.assert_close(tis, torch.tensor([[0.4, 0.8, 3.0]]))


def test_both_ends_of_the_band_are_inside():
    ratio = torch.tensor([[0.5, 1.0, 2.0]], dtype=torch.float64)
    zero = torch.zeros_like(ratio)
    band = (math.exp(math.log(0.5)), math.exp(math.log(2.0)))
    weights = rollout_weights(ratio.log(), zero, ALL, kind="icepop", band=band)
    torch.testing.assert_close(weights, ratio)


@pytest.mark.parametrize("kind", CORRECTIONS)
def test_equal_logprobs_weigh_one_and_have_no_gradient(kind):
    logp = ROLLOUT.clone().requires_grad_()
    weights = rollout_weights(logp, logp, ALL, kind=kind)
    assert torch.equal(weights, torch.ones(1, 3))
    assert not weights.requires_grad


def test_far_apart_stays_finite():
    far = torch.tensor([[-1000.0, 1000.0, math.inf]])
    assert rollout_weights(far, ROLLOUT, ALL, kind="tis", cap=1e12).tolist()[0] == pytest.approx(
        [math.exp(-20), math.exp(20), math.exp(20)]
    )


@pytest.mark.parametrize("kind", ["tis", "icepop"])
def test_a_nan_on_a_sampled_token_is_not_hidden(kind):
    old = torch.tensor([[math.nan, -2.0, -3.0]])
    weights = rollout_weights(old, ROLLOUT, ALL, kind=kind)
    assert weights.isnan().tolist() == [[True, False, False]]


def test_weigh_multiplies_the_loss_and_leaves_the_sums():
    x = torch.tensor([[1.0, 2.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    sums = {"actor/ppo_kl": torch.tensor(5.0)}
    weights = torch.tensor([[0.5, 0.0, math.nan]], requires_grad=True)
    weighed = weigh(PolicyLoss(per_token_BT=3 * x, sums=sums), weights, mask_BT=mask)
    weighed.per_token_BT.sum().backward()
    assert torch.equal(weighed.per_token_BT, torch.tensor([[1.5, 0.0, 0.0]]))
    assert torch.equal(x.grad, torch.tensor([[1.5, 0.0, 0.0]]))
    assert weights.grad is None
    assert weighed.sums is sums


TWO_ROWS = {
    "old": torch.tensor([[-1.0, 9.0, -2.0], [-3.0, 9.0, 9.0], [9.0, 9.0, 9.0]]),
    "rollout": torch.tensor([[-1.5, 7.0, -1.0], [-2.0, 7.0, 7.0], [7.0, 7.0, 7.0]]),
    "mask": torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.bool),
}


def diagnostics(weights, **changes):
    given = {**TWO_ROWS, **changes}
    found = rollout_diagnostics(given["old"], given["rollout"], given["mask"], weights)
    return {name.removeprefix("rollout_corr/"): value for name, value in found.items()}


def test_distances_by_hand():
    # d = .5, -1 in row 0 and -1 in row 1; row 2 has no sampled token and does not count.
    e = math.exp
    assert diagnostics(None) == {
        name: pytest.approx(value)
        for name, value in {
            "logprob_diff_max": 1.0,
            "kl": 1.5 / 3,
            "k3_kl": ((e(0.5) - 1.5) + 2 * (e(-1) - 0)) / 3,  # e^-1 - 1 + 1
            "training_ppl": (e(1.5) + e(3)) / 2,
            "training_log_ppl": (1.5 + 3) / 2,
            "rollout_ppl": (e(1.25) + e(2)) / 2,
            "rollout_log_ppl": (1.25 + 2) / 2,
            "log_ppl_diff": (0.25 + 1) / 2,
            "log_ppl_abs_diff": (0.25 + 1) / 2,
            "log_ppl_diff_max": 1.0,
            "log_ppl_diff_min": 0.25,
            "ppl_ratio": (e(0.25) + e(1)) / 2,
            "chi2_token": (e(1) + 2 * e(-2)) / 3 - 1,
            "chi2_seq": (e(-1) + e(-2)) / 2 - 1,  # products e^-.5, e^-1
        }.items()
    }


def test_the_absolute_difference_does_not_cancel():
    old = torch.tensor([[-1.0], [-1.0]])
    found = diagnostics(
        None, old=old, rollout=torch.tensor([[-2.0], [0.0]]), mask=torch.ones(2, 1).bool()
    )
    assert found["log_ppl_diff"] == 0
    assert found["log_ppl_abs_diff"] == 1


def test_weights_by_hand():
    # icepop leaves 0, .8, 0: mean .8/3, mean square .64/3, (.8/3)^2 / (.64/3) = 1/3 (verl's test).
    weights = rollout_weights(OLD, ROLLOUT, ALL, kind="icepop")
    found = diagnostics(weights, old=OLD, rollout=ROLLOUT, mask=ALL)
    assert {k: v for k, v in found.items() if k.startswith("rollout_is")} == {
        "rollout_is_mean": pytest.approx(0.8 / 3),
        "rollout_is_std": pytest.approx(math.sqrt(0.64 / 3 - (0.8 / 3) ** 2)),
        "rollout_is_max": pytest.approx(0.8),
        "rollout_is_min": 0.0,
        "rollout_is_eff_sample_size": pytest.approx(1 / 3),
        "rollout_is_ratio_fraction_high": pytest.approx(1 / 3),
        "rollout_is_ratio_fraction_low": pytest.approx(1 / 3),
        "rollout_is_seq_mean": pytest.approx(0.8 / 3),
        "rollout_is_seq_std": 0.0,
        "rollout_is_seq_max": pytest.approx(0.8 / 3),
        "rollout_is_seq_min": pytest.approx(0.8 / 3),
        "rollout_is_seq_max_deviation": pytest.approx(1 - 0.8 / 3),
    }


def test_weights_of_rows_by_hand():
    # tis, cap 2: e^.5, e^-1 (mean m0) and e^-1; nothing is cut; the empty row does not count.
    given = TWO_ROWS["old"], TWO_ROWS["rollout"], TWO_ROWS["mask"]
    found = diagnostics(rollout_weights(*given, kind="tis"))
    m0, m1 = (math.exp(0.5) + math.exp(-1)) / 2, math.exp(-1)
    assert found["rollout_is_seq_mean"] == pytest.approx((m0 + m1) / 2)
    assert found["rollout_is_seq_std"] == pytest.approx((m0 - m1) / math.sqrt(2))  # ddof 1
    assert found["rollout_is_seq_max"] == pytest.approx(m0)
    assert found["rollout_is_seq_min"] == pytest.approx(m1)
    assert found["rollout_is_seq_max_deviation"] == pytest.approx(1 - m1)
    assert found["rollout_is_ratio_fraction_high"] == 0
    assert found["rollout_is_ratio_fraction_low"] == 0


def test_every_token_dropped_leaves_no_sample():
    far = ROLLOUT - 9
    weights = rollout_weights(far, ROLLOUT, ALL, kind="icepop")
    found = diagnostics(weights, old=far, rollout=ROLLOUT, mask=ALL)
    assert found["rollout_is_eff_sample_size"] == 0
    assert found["rollout_is_ratio_fraction_low"] == 1


def test_equal_logprobs_are_no_distance():
    weights = rollout_weights(ROLLOUT, ROLLOUT, ALL, kind="tis")
    found = diagnostics(weights, old=ROLLOUT, rollout=ROLLOUT, mask=ALL)
    zeros = ("logprob_diff_max", "kl", "k3_kl", "log_ppl_diff", "chi2_token", "chi2_seq")
    assert [found[name] for name in zeros] == [0] * 6
    ones = ("ppl_ratio", "rollout_is_mean", "rollout_is_eff_sample_size")
    assert [found[name] for name in ones] == [1] * 3


def test_numbers_stay_finite_far_apart():
    old, rollout = torch.full((1, 3), -500.0), torch.full((1, 3), -1.0)
    weights = rollout_weights(old, rollout, ALL, kind="tis")
    for pair in ((old, rollout), (rollout, old)):
        found = diagnostics(weights, old=pair[0], rollout=pair[1], mask=ALL)
        assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize("kind", CORRECTIONS)
@pytest.mark.parametrize("rubbish", [math.nan, 1e6, -math.inf])
def test_masked_positions_reach_nothing(kind, rubbish):
    mask = TWO_ROWS["mask"]
    outcomes = []
    for fill in (0.0, rubbish):
        old, rollout = TWO_ROWS["old"].where(mask, fill), TWO_ROWS["rollout"].where(mask, fill)
        weights = rollout_weights(old, rollout, mask, kind=kind)
        assert (weights[~mask] == 0).all()
        dirty = weights.where(mask, rubbish)
        outcomes.append((weights.tolist(), diagnostics(dirty, old=old, rollout=rollout)))
    assert outcomes[0] == outcomes[1]


def test_permuting_rows_permutes_weights_and_keeps_the_diagnostics():
    order = torch.tensor([2, 0, 1])
    given = [TWO_ROWS[name] for name in ("old", "rollout", "mask")]
    weights = rollout_weights(*given, kind="tis")
    moved = [tensor[order] for tensor in given]
    moved_weights = rollout_weights(*moved, kind="tis")
    assert torch.equal(moved_weights, weights[order])
    assert rollout_diagnostics(*moved, moved_weights) == pytest.approx(
        rollout_diagnostics(*given, weights)
    )


def test_no_sampled_token_says_nothing():
    nothing = TWO_ROWS["mask"] & False
    assert diagnostics(torch.zeros(3, 3), mask=nothing) == {}


def test_refusals():
    given = OLD, ROLLOUT, ALL
    with pytest.raises(
        ValueError, match=r"^'ice' is not a rollout correction\. Choose one of none, tis, icepop\.$"
    ):
        rollout_weights(*given, kind="ice")
    for cap in (0.5, math.nan):
        with pytest.raises(ValueError, match=r"^cap is .*; it must be at least 1\.$"):
            rollout_weights(*given, kind="tis", cap=cap)
    for band in ((-0.1, 2.0), (1.1, 2.0), (0.1, 0.9)):
        with pytest.raises(ValueError, match=r"^band is \(.*\); it must hold 1, and its lower"):
            rollout_weights(*given, kind="icepop", band=band)
    with pytest.raises(ValueError, match=r"^mask_NT has dtype torch\.float32"):
        rollout_weights(OLD, ROLLOUT, ALL.float(), kind="none")
    with pytest.raises(ValueError, match=r"^shapes differ: old_logp_NT \(1, 3\), rollout_logp_NT"):
        rollout_weights(OLD, ROLLOUT[:, :1], ALL, kind="none")
    with pytest.raises(ValueError, match=r"^shapes differ: weights_NT \(1, 1\), mask_NT"):
        rollout_diagnostics(*given, torch.ones(1, 1))
    with pytest.raises(ValueError, match=r"^shapes differ: per_token_BT \(1, 3\), weights_BT"):
        weigh(PolicyLoss(OLD, {}), OLD[:, :1], mask_BT=ALL)
