import math
from itertools import combinations
from statistics import fmean, stdev, variance

import numpy as np
import pytest

from rltune.maths.spread import paired_spread


def block(**conditions):
    return {(c, seed): v for c, values in conditions.items() for seed, v in enumerate(values)}


def test_two_conditions_by_hand():
    """d = -0.4, -0.4, -0.5: s = 0.057735, 2 degrees of freedom.

    chi2(2) has the quantiles -2 ln(1 - p): 0.0506356 and 7.377759, so the interval ends at
    s sqrt(2 / 7.377759) = 0.52066 s = 0.03006 and s sqrt(2 / 0.0506356) = 6.28473 s = 0.36285.
    """
    found = paired_spread([block(control=(0.6, 0.7, 0.8), treated=(0.2, 0.3, 0.3))])
    assert found.value == pytest.approx(stdev((-0.4, -0.4, -0.5)))
    assert found.freedom == 2
    assert found.interval == pytest.approx((0.03006, 0.36285), abs=1e-5)


THREE = {"a": (1.0, 2.0, 3.0), "b": (2.0, 2.0, 2.0), "c": (3.0, 5.0, 4.0)}


def test_three_conditions_by_hand():
    """Conditions have the means 2, 2, 4, seeds 2, 3, 3, all 8/3.

    The rests of each condition are two of -1/3 and one of 2/3, so RSS = 3 x 6/9 = 2 with
    (3 - 1)(3 - 1) = 4 degrees of freedom, and s = sqrt(2 x 2 / 4) = 1.
    """
    found = paired_spread([block(**THREE)])
    assert found.value == pytest.approx(1.0)
    assert found.freedom == 4


def test_it_is_the_mean_variance_of_the_differences_of_all_pairs():
    rng = np.random.default_rng(0)
    values = {name: tuple(rng.normal(size=5)) for name in "abcd"}
    of_pairs = [
        variance(x - y for x, y in zip(values[a], values[b], strict=True))
        for a, b in combinations(values, 2)
    ]
    assert paired_spread([block(**values)]).value == pytest.approx(math.sqrt(fmean(of_pairs)))


def test_luck_of_a_seed_that_all_conditions_share_does_not_count():
    moved = {c: tuple(v + 10.0 * seed for seed, v in enumerate(vs)) for c, vs in THREE.items()}
    assert paired_spread([block(**moved)]).value == pytest.approx(1.0)


def test_a_cell_may_be_missing_and_a_lone_one_says_nothing():
    cells = block(**THREE)
    lone = {**cells, ("a", 9): 77.0}
    found = paired_spread([lone])
    assert (found.value, found.freedom) == (pytest.approx(1.0), 4)
    del cells["b", 1]
    assert paired_spread([cells]).freedom == 3


def test_runs_add_up_and_do_not_see_each_other():
    one, other = block(**THREE), block(a=(101.0, 102.0, 103.0), b=(7.0, 7.0, 7.0))
    # a - b of the second: 94, 95, 96, whose variance is 1
    found = paired_spread([one, other])
    assert (found.value, found.freedom) == (pytest.approx(1.0), 6)


def test_no_spread_is_not_a_spread_of_zero():
    flat = block(a=(0.4, 0.5, 0.6), b=(0.3, 0.4, 0.5))
    assert paired_spread([flat]) is None
    found = paired_spread([flat], resolution=0.1)
    assert (found.value, found.interval) == (0.1, (0.1, 0.1))


@pytest.mark.parametrize("blocks", [[], [{}], [block(a=(1.0, 2.0))], [block(a=(1.0,), b=(2.0,))]])
def test_too_little_says_nothing(blocks):
    assert paired_spread(blocks, resolution=0.1) is None


def test_the_interval_holds_the_true_spread_in_95_of_100_pilots():
    """Three seeds and a shared control: it says how little a small pilot knows."""
    rng, hits = np.random.default_rng(1), 0
    for _ in range(1000):
        seeds, cells = rng.normal(0.0, 3.0, 3), rng.normal(0.0, 1.0, (4, 3))
        values = {f"c{i}": tuple(seeds + row) for i, row in enumerate(cells)}
        low, high = paired_spread([block(**values)]).interval
        hits += low <= math.sqrt(2.0) <= high
    assert 930 <= hits <= 970
