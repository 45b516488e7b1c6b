"""A2TGPO: normalising gains in four modes, and accumulating them. Hand numbers first."""

import doctest
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages import info_gain
from rltune.advantages.grpo import grpo
from rltune.advantages.info_gain import MODES, Normalised, TurnGroupNormalizer, accumulate

NAN = math.nan


def double(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def flags(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def batch():
    """Make two prompts: two episodes of three turns, and one of three turns with one of two."""
    outcome = double(1, 0, 1, 1)
    ig = double([0.1, 0.7, NAN], [0.3, 0.1, NAN], [0.2, 0.5, 1e6], [0.6, NAN, NAN])
    has = flags([1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 0, 0])
    is_turn = flags([1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0])
    return outcome, ig, has, torch.tensor([4, 4, 9, 9]), is_turn


def z(*values, eps=1e-6):
    """Return z-scores over the population, by plain arithmetic."""
    mean = sum(values) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return [(value - mean) / (std + eps) for value in values]


def test_the_example_of_the_docstring():
    result = doctest.testmod(info_gain)
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize("mode", ["turn-group", "turn-group-v1d"])
def test_turn_group_by_hand(mode):
    outcome, ig, has, group, _ = batch()
    got = TurnGroupNormalizer(mode=mode)(outcome, ig, has, group)
    # prompt 4: turn 0 has .1, .3 -> -1, 1 (std .1); turn 1 has .7, .1 -> 1, -1 (std .3)
    # prompt 9: turn 0 has .2, .6 -> -1, 1; turn 1 is alone -> 0. All but for eps.
    low, high = 0.1 / (0.1 + 1e-6), 0.3 / (0.3 + 1e-6)
    want = double([-low, high, 0], [low, -high, 0], [-z(0.2, 0.6)[1], 0, 0], [z(0.2, 0.6)[1], 0, 0])
    torch.testing.assert_close(got.ig_NK, want, rtol=0, atol=1e-12)
    one = 0.5 / (0.5 + 1e-6)  # outcomes 1, 0: std .5; outcomes 1, 1: no spread
    assert got.outcome_N.tolist() == pytest.approx([one, -one, 0, 0], abs=1e-12)


def test_separate_by_hand():
    outcome, ig, has, group, _ = batch()
    got = TurnGroupNormalizer(mode="separate")(outcome, ig, has, group)
    a, b, c, d = z(0.1, 0.7, 0.3, 0.1)  # mean .3, var (.04 + .16 + 0 + .04) / 4 = .06
    assert a == pytest.approx(-0.2 / math.sqrt(0.06), abs=1e-5)
    e, f, g = z(0.2, 0.5, 0.6)
    want = double([a, b, 0], [c, d, 0], [e, f, 0], [g, 0, 0])
    torch.testing.assert_close(got.ig_NK, want, rtol=0, atol=1e-12)
    assert got.outcome_N.tolist() == pytest.approx([*z(1, 0), 0, 0], abs=1e-12)


def test_joint_by_hand():
    outcome, ig, has, group, _ = batch()
    got = TurnGroupNormalizer(mode="joint")(outcome, ig, has, group)
    r0, r1, a, b, c, d = z(1, 0, 0.1, 0.7, 0.3, 0.1)  # mean 2.2 / 6
    assert r0 == pytest.approx((1 - 2.2 / 6) / math.sqrt(1.6 / 6 - (2.2 / 6) ** 2), abs=1e-5)
    r2, r3, e, f, g = z(1, 1, 0.2, 0.5, 0.6)
    assert got.outcome_N.tolist() == pytest.approx([r0, r1, r2, r3], abs=1e-12)
    want = double([a, b, 0], [c, d, 0], [e, f, 0], [g, 0, 0])
    torch.testing.assert_close(got.ig_NK, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_only_v1d_is_rescaled(mode):
    assert TurnGroupNormalizer(mode=mode).is_rescaled is (mode == "turn-group-v1d")


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "joint"])
def test_outcomes_are_normalised_as_by_grpo_over_the_population(mode):
    outcome, ig, has, group, _ = batch()
    got = TurnGroupNormalizer(mode=mode)(outcome, ig, has, group)
    assert torch.equal(got.outcome_N, grpo(outcome, group, ddof=0))


@pytest.mark.parametrize("mode", MODES)
def test_equal_values_and_groups_of_one_give_exactly_zero(mode):
    outcome, ig = torch.full((4,), 0.1), torch.full((4, 2), 0.1)
    has = flags([1, 0], [1, 0], [1, 0], [0, 0])
    got = TurnGroupNormalizer(mode=mode)(outcome, ig, has, torch.tensor([0, 0, 0, 1]))
    assert got.outcome_N.tolist() == [0] * 4
    assert got.ig_NK.tolist() == [[0, 0]] * 4


@pytest.mark.parametrize("mode", MODES)
def test_no_gain_at_all(mode):
    outcome, group = double(1, 0, 3), torch.tensor([0, 0, 0])
    for shape in ((3, 2), (3, 0)):
        none = torch.zeros(shape, dtype=torch.bool)
        got = TurnGroupNormalizer(mode=mode)(outcome, torch.full(shape, NAN), none, group)
        assert got.outcome_N.tolist() == pytest.approx(z(1, 0, 3), abs=1e-12)
        assert torch.equal(got.ig_NK, torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize("mode", MODES)
def test_an_exact_zero_counts_and_keeps_its_turn(mode):
    ig, has = double([0.0, 0.4], [0.2, 0.0]), flags([1, 1], [1, 1])
    got = TurnGroupNormalizer(mode=mode)(double(0, 1), ig, has, torch.tensor([0, 0]))
    if mode.startswith("turn-group"):
        assert got.ig_NK.tolist() == [
            pytest.approx([-1, 1], abs=1e-4),
            pytest.approx([1, -1], abs=1e-4),
        ]
    assert (got.ig_NK[has] != 0).all()


def test_min_std_only_centres_a_spread_of_noise():
    ig, has, group = double([0.0], [2e-5]), flags([1], [1]), torch.tensor([0, 0])
    got = TurnGroupNormalizer(min_std=1e-4)(double(0, 1), ig, has, group)
    assert got.ig_NK[:, 0].tolist() == pytest.approx([-1e-5, 1e-5], abs=1e-12)
    assert got.outcome_N.tolist() == pytest.approx(z(0, 1), abs=1e-12)
    got = TurnGroupNormalizer()(double(0, 1), ig, has, group)
    assert got.ig_NK[:, 0].tolist() == pytest.approx(z(0, 2e-5), abs=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rubbish", [NAN, 1e6, math.inf])
def test_places_without_a_gain_are_not_read(mode, rubbish):
    outcome, ig, has, group, is_turn = batch()
    normalise = TurnGroupNormalizer(mode=mode)
    clean = normalise(outcome, ig.where(has, 0), has, group)
    dirty = normalise(outcome, ig.where(has, rubbish), has, group)
    assert torch.equal(clean.ig_NK, dirty.ig_NK)
    assert torch.equal(clean.outcome_N, dirty.outcome_N)
    spoilt = Normalised(clean.outcome_N, clean.ig_NK.where(has, rubbish))
    numbers = {"gamma": 0.9, "ig_coef": 1.0, "is_rescaled": True}
    assert torch.equal(
        accumulate(spoilt, has, is_turn, **numbers), accumulate(clean, has, is_turn, **numbers)
    )


def test_gains_and_outcomes_are_constants():
    outcome, ig, has, group, _ = batch()
    got = TurnGroupNormalizer()(outcome.requires_grad_(), ig.requires_grad_(), has, group)
    assert not got.outcome_N.requires_grad
    assert not got.ig_NK.requires_grad


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(MODES), st.permutations(range(4)), st.integers(-50, 50))
def test_order_does_not_matter_and_a_shift_of_the_outcomes_neither(mode, order, shift):
    outcome, ig, has, group, _ = batch()
    normalise = TurnGroupNormalizer(mode=mode)
    whole = normalise(outcome, ig, has, group)
    mixed = normalise(outcome[order], ig[order], has[order], group[order])
    torch.testing.assert_close(mixed.outcome_N, whole.outcome_N[order], rtol=0, atol=1e-9)
    torch.testing.assert_close(mixed.ig_NK, whole.ig_NK[order], rtol=0, atol=1e-9)
    if mode != "joint":
        moved = normalise(outcome + shift, ig, has, group)
        torch.testing.assert_close(moved.outcome_N, whole.outcome_N, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_prompts_do_not_see_each_other(mode):
    outcome, ig, has, group, _ = batch()
    whole = TurnGroupNormalizer(mode=mode)(outcome, ig, has, group)
    alone = TurnGroupNormalizer(mode=mode)(outcome[:2], ig[:2], has[:2], group[:2])
    assert torch.equal(whole.ig_NK[:2], alone.ig_NK)
    assert torch.equal(whole.outcome_N[:2], alone.outcome_N)


ROW = Normalised(double(10), double([1, 2, 4, NAN]))
HAS, IS_TURN = flags([1, 1, 1, 0]), flags([1, 1, 1, 1])


def credit(row=ROW, has=HAS, is_turn=IS_TURN, *, gamma=1.0, ig_coef=1.0, is_rescaled=False):
    return accumulate(row, has, is_turn, gamma=gamma, ig_coef=ig_coef, is_rescaled=is_rescaled)


CASES = [  # (numbers, advantages less R^ = 10 by hand)
    pytest.param({}, [7, 6, 4, 0], id="sums"),
    pytest.param({"gamma": 0.5}, [1 + 1 + 1, 2 + 2, 4, 0], id="discounted"),
    pytest.param({"gamma": 0.0}, [1, 2, 4, 0], id="own-gain-only"),
    pytest.param({"ig_coef": 0.3}, [2.1, 1.8, 1.2, 0], id="released-weight"),
    pytest.param({"ig_coef": 0.0}, [0, 0, 0, 0], id="outcome-only"),
    pytest.param({"is_rescaled": True}, [7 / math.sqrt(3), 6 / math.sqrt(2), 4, 0], id="rescaled"),
    pytest.param(
        {"is_rescaled": True, "gamma": 0.5, "ig_coef": 0.3},
        [0.9 / math.sqrt(3), 1.2 / math.sqrt(2), 1.2, 0],
        id="all-three",
    ),
]


@pytest.mark.parametrize(("numbers", "want"), CASES)
def test_accumulation_by_hand(numbers, want):
    assert credit(**numbers)[0].tolist() == pytest.approx([10 + d for d in want], abs=1e-12)


def test_a_turn_of_unknown_gain_adds_nothing_and_still_discounts():
    # turn 1 unknown: D_0 = 1 + .5 * 0 + .25 * 4 = 2 over 2 gains; D_1 = .5 * 4 over 1; D_2 = 4
    got = credit(has=flags([1, 0, 1, 0]), gamma=0.5, is_rescaled=True)
    assert got[0].tolist() == pytest.approx([10 + 2 / math.sqrt(2), 12, 14, 10], abs=1e-12)


@pytest.mark.parametrize("is_rescaled", [True, False])
def test_one_turn_is_the_outcome_and_no_turn_is_zero(is_rescaled):
    row = Normalised(double(3, 5, 7), double([NAN, NAN], [NAN, 1e6], [2, NAN]))
    has, is_turn = flags([0, 0], [0, 0], [1, 0]), flags([0, 0], [1, 0], [1, 1])
    got = credit(row, has, is_turn, is_rescaled=is_rescaled)
    assert got.tolist() == [[0, 0], [5, 0], [9, 7]]


@pytest.mark.parametrize("mode", MODES)
def test_without_gains_every_turn_has_the_outcome(mode):
    outcome, ig, _, group, is_turn = batch()
    none = torch.zeros_like(is_turn)
    row = TurnGroupNormalizer(mode=mode)(outcome, ig, none, group)
    got = credit(row, none, is_turn, is_rescaled=True)
    want = grpo(outcome, group, ddof=0)[:, None].expand(4, 3).where(is_turn, 0)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: TurnGroupNormalizer(mode="turn"),
            r"^mode is 'turn'; choose one of joint, separate, turn-group, turn-group-v1d\.$",
        ),
        (lambda: TurnGroupNormalizer(eps=-1e-6), r"^eps is -1e-06; it must be 0 or more\.$"),
        (lambda: TurnGroupNormalizer(min_std=NAN), r"^min_std is nan; it must be 0 or more\.$"),
        (lambda: credit(gamma=1.1), r"^gamma is 1\.1; it must lie in \[0, 1\]\.$"),
        (lambda: credit(ig_coef=-1.0), r"^ig_coef is -1\.0; it must be 0 or more, and finite\.$"),
        (lambda: credit(ig_coef=math.inf), r"^ig_coef is inf; "),
        (
            lambda: credit(has=IS_TURN),
            r"^has_ig_NK\[0, 3\] is True, but turn 3 is the last of row 0 or none; a gain needs a "
            r"turn after it\.$",
        ),
        (lambda: credit(is_turn=flags([1, 1, 1, 0])), r"^has_ig_NK\[0, 2\] is True, but turn 2 "),
        (lambda: credit(has=HAS.double()), r"^has_ig_NK has dtype torch\.float64"),
        (lambda: credit(is_turn=IS_TURN.double()), r"^is_turn_NK has dtype torch\.float64"),
        (lambda: credit(has=HAS[:, :3]), r"^shapes differ: "),
        (lambda: credit(has=HAS.expand(2, 4), is_turn=IS_TURN.expand(2, 4)), r"^shapes differ: "),
        (
            lambda: credit(
                Normalised(ROW.outcome_N, ROW.ig_NK.expand(2, 4)),
                HAS.expand(2, 4),
                IS_TURN.expand(2, 4),
            ),
            r"^shapes differ: outcome_N \(1,\), rows \(2,\)\.",
        ),
    ],
)
def test_bad_inputs_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_value_that_counts_must_be_finite():
    outcome, ig, has, group, _ = batch()
    with pytest.raises(ValueError, match=r"^ig_NK\[3, 1\] is not finite but has_ig_NK is True"):
        TurnGroupNormalizer()(outcome, ig, has | (ig == 1e6) | ig.isnan() & flags([1, 1, 0]), group)
    outcome[2] = NAN
    with pytest.raises(ValueError, match=r"^outcome_N\[2\] is not finite; mask the trajectory"):
        TurnGroupNormalizer()(outcome, ig, has, group)
    with pytest.raises(ValueError, match=r"^shapes differ: "):
        TurnGroupNormalizer()(outcome[:1], ig, has, group)
