import numpy as np
import pytest

from rltune.maths.sequential import Decision, adjusted_p, decide, look_at, nominal_levels
from rltune.maths.sequential_power import detectable, expected, seeds_for_looks, stops

COUNTS = list(range(3, 13))


def test_the_boundary_opens_from_look_to_look_and_ends_below_the_level():
    levels = nominal_levels(COUNTS, most=12, level=0.05)
    assert list(levels) == sorted(levels)
    assert levels[0] < 1e-5
    assert 0.025 < levels[-1] < 0.04  # one test of the 4 % that are spent has 0.04


def test_one_look_spends_everything_that_is_spent():
    assert nominal_levels([5], most=5, level=0.05) == pytest.approx([0.04])
    assert nominal_levels([4], most=5, level=0.05, is_final=True) == pytest.approx([0.04])
    assert nominal_levels([4], most=5, level=0.05)[0] < 0.025


def test_an_early_look_does_not_know_how_many_follow():
    assert nominal_levels(COUNTS[:4], most=12, level=0.05) == pytest.approx(
        nominal_levels(COUNTS, most=12, level=0.05)[:4]
    )


def test_a_look_by_hand():
    """t(2, 1 - 0.05 / 2) = 4.30265, s = 0.01, so half = 4.30265 x 0.01 / sqrt(3) = 0.0248."""
    look = look_at([0.05, 0.06, 0.07], boundary=0.05, effect=0.0)
    assert look.mean == pytest.approx(0.06)
    assert look.interval == pytest.approx((0.06 - 0.02484, 0.06 + 0.02484), abs=1e-5)
    assert look.decision is Decision.DIFFERENT
    assert look.p == pytest.approx(0.00915, abs=1e-4)  # t = 10.392


@pytest.mark.parametrize(
    ("interval", "decision"),
    [
        ((0.01, 0.09), Decision.DIFFERENT),
        ((-0.09, -0.01), Decision.DIFFERENT),
        ((0.01, 0.02), Decision.DIFFERENT),  # small, but there
        ((-0.04, 0.03), Decision.EQUAL),
        ((-0.05, 0.03), Decision.GO_ON),  # reaches the effect of interest
        ((-0.04, 0.06), Decision.GO_ON),
    ],
)
def test_what_an_interval_decides(interval, decision):
    from rltune.maths.interval import Interval

    assert decide(Interval(*interval), 0.05) is decision


def test_nothing_is_equal_without_an_effect_of_interest_and_nothing_is_decided_without_spread():
    assert look_at([0.001, -0.001, 0.0], boundary=0.05, effect=0.0).decision is Decision.GO_ON
    assert look_at([0.2, 0.2, 0.2], boundary=0.05, effect=0.1).decision is Decision.GO_ON
    tied = look_at([0.2, 0.2, 0.2], boundary=0.05, effect=0.1, resolution=0.01)
    assert tied.decision is Decision.DIFFERENT


@pytest.mark.parametrize("p", [1e-9, 1e-4, 0.003, 0.02, 0.2])
def test_the_adjusted_p_is_the_level_whose_boundary_is_p(p):
    counts = COUNTS[:6]
    level = adjusted_p(p, counts, most=12)
    assert p < level
    assert nominal_levels(counts, most=12, level=level)[-1] == pytest.approx(p, rel=1e-4)


def test_the_adjusted_p_is_below_the_level_just_where_the_look_decides():
    counts = COUNTS[:5]
    boundary = nominal_levels(counts, most=12, level=0.05)[-1]
    assert adjusted_p(0.99 * boundary, counts, most=12) < 0.05
    assert adjusted_p(1.01 * boundary, counts, most=12) > 0.05
    assert adjusted_p(0.9999, counts, most=12) == 1.0


def test_the_vector_form_stops_where_the_looks_do():
    rng = np.random.default_rng(3)
    d = rng.normal(rng.choice([0.0, 0.05, 0.1], size=(60, 1)), 0.05, (60, 12))
    levels = nominal_levels(COUNTS, most=12, level=0.05)
    found = stops(d, counts=COUNTS, boundaries=levels, effect=0.06)
    for row, sign, is_equal, seeds in zip(d, found.sign, found.is_equal, found.seeds, strict=True):
        looks = [
            look_at(list(row[:n]), boundary=level, effect=0.06)
            for n, level in zip(COUNTS, levels, strict=True)
        ]
        stop = next((one for one in looks if one.decision is not Decision.GO_ON), looks[-1])
        assert seeds == stop.n
        assert bool(is_equal) == (stop.decision is Decision.EQUAL)
        assert sign == (np.sign(stop.mean) if stop.decision is Decision.DIFFERENT else 0)
    assert {int(one) for one in found.seeds} > {5, 12}


def test_looks_hold_the_level_and_nominal_tests_would_not():
    """Naive tests at 0.05 after each of ten looks find something in about 18 % of empty sweeps."""
    d = np.random.default_rng(1).normal(size=(20_000, 12))
    levels = nominal_levels(COUNTS, most=12, level=0.05)
    assert (stops(d, counts=COUNTS, boundaries=levels).sign != 0).mean() < 0.05
    assert (stops(d, counts=COUNTS, boundaries=[0.05] * 10).sign != 0).mean() > 0.12


def test_a_large_effect_needs_a_quarter_less_than_the_fixed_design():
    size = detectable(counts=COUNTS, most=12, level=0.05)
    assert size == pytest.approx(0.96, abs=0.03)  # a fixed t test of 11 pairs sees it
    assert expected(size, counts=COUNTS, most=12, level=0.05).different == pytest.approx(
        0.8, abs=0.01
    )
    assert expected(2.0 * size, counts=COUNTS, most=12, level=0.05).seeds < 0.75 * 11


def test_no_difference_ends_equal_where_the_margin_is_wide():
    found = expected(0.0, counts=COUNTS, most=12, level=0.05, margin=2.0)
    assert found.equal > 0.9
    assert found.different < 0.025
    assert found.seeds < 9


def test_expected_is_what_stops_counts():
    """The sums that `expected` runs on give the same stops as the values themselves."""
    levels = nominal_levels(COUNTS, most=12, level=0.05)
    d = np.random.default_rng(0).normal(0.0, 1.0, (20_000, 12)) + 0.9
    found = stops(d, counts=COUNTS, boundaries=levels, effect=1.4)
    ends = expected(0.9, counts=COUNTS, most=12, level=0.05, margin=1.4)
    assert ends.different == pytest.approx((found.sign > 0).mean(), abs=1e-12)
    assert ends.equal == pytest.approx(found.is_equal.mean(), abs=1e-12)
    assert ends.seeds == pytest.approx(found.seeds.mean(), abs=1e-12)


def test_the_most_seeds_keep_the_promise_and_one_less_does_not():
    most = seeds_for_looks(0.96, start=3, block=1, level=0.05)
    assert most == pytest.approx(12, abs=1)
    for last, is_enough in ((most, True), (most - 1, False)):
        ends = expected(0.96, counts=range(3, last + 1), most=last, level=0.05)
        assert (ends.different >= 0.8) is is_enough


def test_a_glaring_effect_needs_the_first_block_and_a_tiny_one_more_than_a_sweep_has():
    assert seeds_for_looks(60.0, start=3, block=2, level=0.05) == 3
    assert seeds_for_looks(0.01, start=3, block=5, level=0.05) is None
