import math
import statistics

import pytest

from rltune.analysis.stats import (
    as_rate,
    mean_over_seeds,
    paired_difference,
)
from rltune.gate import wilson_interval


def overlap(a, b):
    """Whether two intervals share a value: then the two rates are not to be ranked."""
    return a.low <= b.high and b.low <= a.high


def test_mean_over_seeds_by_hand():
    # mean 0.7, s = 0.1, t(2, 0.975) = 4.302653, half = 4.302653 * 0.1 / sqrt(3) = 0.248414
    found = mean_over_seeds([0.6, 0.7, 0.8])
    assert found.mean == pytest.approx(0.7)
    assert found.n == 3
    assert found.interval == pytest.approx((0.7 - 0.248414, 0.7 + 0.248414), abs=1e-6)


def test_two_seeds_say_almost_nothing():
    # s = 0.1 / sqrt(2), t(1, 0.975) = 12.706205, half = 12.706205 * 0.1 / 2 = 0.635310
    found = mean_over_seeds([0.4, 0.5])
    assert found.interval == pytest.approx((0.45 - 0.635310, 0.45 + 0.635310), abs=1e-6)


def test_interval_of_a_rate_stays_a_rate():
    found = as_rate(mean_over_seeds([0.4, 0.5]))
    assert (found.mean, found.interval) == (pytest.approx(0.45), (0.0, 1.0))
    assert as_rate(mean_over_seeds([0.4])).interval is None


@pytest.mark.parametrize("values", [[], [0.4]])
def test_fewer_than_two_values_have_no_interval(values):
    found = mean_over_seeds(values)
    assert found.interval is None
    assert found.n == len(values)
    assert math.isnan(found.mean) is not bool(values)


def test_ninety_percent_is_narrower():
    wide, narrow = (mean_over_seeds([0.1, 0.2, 0.4], confidence=c).interval for c in (0.95, 0.9))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_nan_is_refused():
    with pytest.raises(ValueError, match=r"^the mean over seeds needs finite values, got \[nan\]$"):
        mean_over_seeds([math.nan])


def test_paired_difference_takes_shared_seeds_only():
    # differences of seeds 1 and 2: 0.1 and 0.3
    found = paired_difference({1: 0.5, 2: 0.6, 7: 0.9}, {1: 0.4, 2: 0.3, 0: 0.1})
    assert found.n == 2
    assert found.mean == pytest.approx(0.2)


def test_pairing_removes_what_seeds_share():
    control = {0: 0.2, 1: 0.5, 2: 0.8}
    treated = {seed: value + 0.05 + 0.001 * seed for seed, value in control.items()}
    assert paired_difference(treated, control).interval.low > 0.0
    unpaired = mean_over_seeds(list(treated.values())), mean_over_seeds(list(control.values()))
    assert overlap(unpaired[0].interval, unpaired[1].interval)


def test_seeds_that_agree_have_no_measured_spread():
    """Three equal differences: a spread of zero is not known."""
    control = {0: 0.5, 1: 0.6, 2: 0.7}
    treated = {seed: value - 0.2 for seed, value in control.items()}
    # floored at one of ten tasks: half = 4.302653 * 0.1 / sqrt(3) = 0.248414 > 0.2
    found = paired_difference(treated, control, resolution=0.1)
    assert found.interval == pytest.approx((-0.448414, 0.048414), abs=1e-6)


@pytest.mark.parametrize("values", [(0.1, 0.1, 0.1), (0.0, 0.0), (0.1 + 0.2, 0.3, 0.3)])
def test_seeds_without_spread_and_resolution_have_no_interval(values):
    """As `paired_t_p` says p = 1 of them: an interval of width zero would be a claim."""
    found = mean_over_seeds(values)
    assert (found.n, found.interval) == (len(values), None)


def test_the_floor_leaves_a_larger_spread_alone():
    values = [0.6, 0.7, 0.8]
    assert mean_over_seeds(values, resolution=0.05) == mean_over_seeds(values)


def test_sixteen_against_eleven_of_125_is_not_separable():
    """Case E3: 0.128 against 0.088 at n = 125 with one seed is variance."""
    assert overlap(wilson_interval(16, 125), wilson_interval(11, 125))
    assert not overlap(wilson_interval(40, 125), wilson_interval(11, 125))


def test_interval_covers_the_true_mean():
    """Of 400 samples of three normal values about 95 % cover their mean; 3 sigma is 0.033."""
    normal = statistics.NormalDist(0.5, 0.1)
    draws = normal.samples(1200, seed=1)
    covered = [
        (i := mean_over_seeds(draws[k : k + 3]).interval).low <= 0.5 <= i.high
        for k in range(0, 1200, 3)
    ]
    assert sum(covered) / 400 == pytest.approx(0.95, abs=0.033)
