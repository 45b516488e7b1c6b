import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean

from rltune.maths.resample import (
    bootstrap_interval,
    iqm,
    probability_of_improvement,
    row_iqm,
    row_mean,
)

CASES = [
    pytest.param([8, 1, 2, 7, 3, 6, 4, 5], 4.5, id="eight"),  # 3 4 5 6 are left
    pytest.param([0, 1, 2, 3, 100], 2.0, id="five"),  # int(5 / 4) = 1 off each end: 1 2 3
    pytest.param([1, 2, 6], 3.0, id="three-lose-none"),
    pytest.param([0.7], 0.7, id="one"),
]


@pytest.mark.parametrize(("values", "by_hand"), CASES)
def test_interquartile_mean_by_hand(values, by_hand):
    assert iqm(values) == pytest.approx(by_hand)
    assert iqm(values) == pytest.approx(trim_mean(values, 0.25))


def test_no_values_have_no_interquartile_mean():
    assert math.isnan(iqm([]))


def test_rows_do_not_see_each_other():
    assert list(row_iqm(np.array([[1.0, 2, 3, 100], [5, 5, 5, 5]]))) == [2.5, 5.0]


def test_plain_interval_of_two_values_is_their_range():
    # the means of two draws are 0, 0.5, 1 with chances 1/4, 1/2, 1/4: both tails reach the ends
    assert bootstrap_interval([[0.0, 1.0]], is_expanded=False) == (0.0, 1.0)


def test_plain_interval_has_the_quantiles_of_all_resamples():
    # all 4^4 resamples of 0 0 0 1: the sum of 4 draws is binomial(4, 1/4).
    # P(0) = 0.3164; P(>= 3) = 0.0508, P(4) = 0.0039: the 97.5 % quantile of the mean is 3/4
    assert bootstrap_interval([[0, 0, 0, 1]], is_expanded=False) == (0.0, 0.75)


def test_expanded_interval_goes_further_into_the_tails_by_hand():
    # the same 0 0 0 1, P(>= 3 of 4) = 0.0508. t(3, 0.8847) = 1.5: the expanded tail is
    # Phi(-sqrt(4/3) 1.5) = Phi(-1.732) = 0.0416, below 0.0508; Phi(-1.5) = 0.0668 is above it
    assert bootstrap_interval([[0, 0, 0, 1]], confidence=0.7694).high == 0.75


def test_expanded_is_wider_and_both_stay_inside_the_values():
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    wide = bootstrap_interval([values])
    narrow = bootstrap_interval([values], is_expanded=False)
    assert 0.1 <= wide.low < narrow.low < 0.3 < narrow.high < wide.high <= 0.5


def test_the_expansion_vanishes_with_many_seeds():
    values = list(np.random.default_rng(1).normal(size=400))
    wide = bootstrap_interval([values])
    narrow = bootstrap_interval([values], is_expanded=False)
    assert wide == pytest.approx(narrow, abs=0.01)
    # and then it is the normal interval: mean +- 1.96 s / sqrt(n)
    half = 1.96 * np.std(values, ddof=1) / 20
    assert narrow == pytest.approx((np.mean(values) - half, np.mean(values) + half), abs=0.01)


def test_strata_are_resampled_apart():
    """The spread between strata is no luck: each repetition has as many values of each."""
    low = [0.0, 0.01, 0.02, 0.03, 0.04]
    apart = bootstrap_interval([low, [x + 10 for x in low]])
    mixed = bootstrap_interval([low + [x + 10 for x in low]])
    assert apart.high - apart.low < 0.05
    assert mixed.high - mixed.low > 5.0
    assert apart.low < 5.02 < apart.high


def test_a_seed_gives_the_same_interval_and_another_seed_another():
    values = [[0.1, 0.5, 0.2, 0.9, 0.4, 0.3]]
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values, rng_seed=1, reps=50) != bootstrap_interval(values, reps=50)


@pytest.mark.parametrize(
    "strata", [[], [[0.5]], [[0.1, 0.2], [0.5]], [[0.5, 0.5], [0.1, 0.1]], [[0.3, 0.1 + 0.2]]]
)
def test_what_bounds_no_luck_has_no_interval(strata):
    assert bootstrap_interval(strata, row_mean) is None


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"^a bootstrap needs finite values, got \[\[1, nan\]\]$"):
        bootstrap_interval([[1, math.nan]])
    with pytest.raises(ValueError, match=r"^confidence 95 is outside \(0, 1\)$"):
        bootstrap_interval([[1, 2]], confidence=95)


def test_probability_of_improvement_by_hand():
    # 1 2 3 against 0 2 4: wins 1>0, 2>0, 3>0, 3>2 and one tie 2=2: (4 + 1/2) / 9
    assert probability_of_improvement([1, 2, 3], [0, 2, 4]) == pytest.approx(0.5)
    assert probability_of_improvement([1, 2, 3], [0, 0.5]) == 1.0
    assert math.isnan(probability_of_improvement([], [1]))


def test_it_is_mann_whitneys_u():
    rng = np.random.default_rng(0)
    ours, theirs = list(rng.normal(0.5, 1, 9)), list(rng.normal(0, 1, 7))
    u = mannwhitneyu(ours, theirs).statistic
    assert probability_of_improvement(ours, theirs) == pytest.approx(u / 63)
