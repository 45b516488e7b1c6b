import math

import pytest

from rltune.maths.power import (
    MOST,
    mcnemar_power,
    seeds_for_power,
    size_for_power,
    t_power,
    tasks_for_power,
    tasks_for_z_power,
)
from rltune.maths.significance import mcnemar_p

# Cohen (1988) and G*Power 3.1, paired t test, two-sided 0.05, power 0.80
KNOWN = [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10), (2.0, 5)]


@pytest.mark.parametrize(("size", "pairs"), KNOWN)
def test_pairs_of_published_tables(size, pairs):
    assert seeds_for_power(size, 1.0) == pairs
    assert seeds_for_power(-3 * size, 3.0) == pairs


def test_more_power_and_a_stricter_test_need_more():
    assert seeds_for_power(0.5, 1.0, power=0.9) == 44  # G*Power
    assert seeds_for_power(0.5, 1.0, level=0.01) == 51  # G*Power


def test_few_pairs_are_never_enough_when_more_are_asked_for():
    assert seeds_for_power(50.0, 1.0) == 2
    assert seeds_for_power(50.0, 1.0, least=3) == 3


@pytest.mark.parametrize("size", [0.03, 0.0885, 0.0888, 0.2, 0.5, 1.0, 3.0, 9.0])
def test_the_pairs_keep_the_promise_and_one_less_does_not(size):
    n = seeds_for_power(size, 1.0)
    assert t_power(n, size) >= 0.8
    assert n == 2 or t_power(n - 1, size) < 0.8


@pytest.mark.parametrize(
    ("n", "size"), [(2, 0.5), (3, 2.0), (10, 1.0), (34, 0.5), (998, 0.0888), (5000, 0.04)]
)
def test_power_is_that_of_the_noncentral_t(n, size):
    from scipy.stats import nct, t

    critical, centre = t.isf(0.025, n - 1), math.sqrt(n) * size
    exact = nct.sf(critical, n - 1, centre) + nct.cdf(-critical, n - 1, centre)
    assert t_power(n, size) == pytest.approx(exact, abs=1e-10)


# power.t.test of R. The first is in P. Dalgaard, Introductory Statistics with R (2nd ed.),
# section 8.3: delta=10, sd=10*sqrt(2), power=0.85, type="paired" -> n = 19.96892; the
# second n=10, delta=0.5, sd=0.3088401 -> power = 0.9947832. R leaves out the other tail (strict).
@pytest.mark.parametrize(
    ("n", "size", "power"),
    [(19.96892, 10.0 / (10.0 * math.sqrt(2.0)), 0.85), (10, 0.5 / 0.3088401, 0.9947832)],
)
def test_power_is_that_of_r(n, size, power):
    assert t_power(n, size) == pytest.approx(power, abs=1e-6)


def test_seeds_are_those_of_r():
    assert seeds_for_power(10.0, 10.0 * math.sqrt(2.0), power=0.85) == 20


def test_power_of_two_groups_is_that_of_r():
    """power.t.test(n = 20, delta = 1): 0.8689528, with 38 degrees of freedom."""
    assert t_power(20, 1.0 / math.sqrt(2.0), freedom=2.0) == pytest.approx(0.8689528, abs=1e-6)


@pytest.mark.parametrize("level", [0.05, 0.05 / 7])
@pytest.mark.parametrize("n", [2, 3, 5, 12, 100])
def test_the_smallest_size_has_just_this_power(n, level):
    size = size_for_power(n, level=level)
    assert t_power(n, size, level=level) == pytest.approx(0.8, abs=1e-6)
    assert seeds_for_power(1.0001 * size, 1.0, level=level) == n


def test_the_smallest_size_of_three_pairs_is_that_of_the_noncentral_t():
    """t(2, 0.975) = 4.302653."""
    from scipy.optimize import brentq
    from scipy.stats import nct

    root = brentq(lambda size: nct.sf(4.302653, 2, math.sqrt(3.0) * size) - 0.8, 1.0, 9.0)
    assert size_for_power(3) == pytest.approx(root, rel=1e-6)


def test_power_of_an_overwhelming_effect_is_one():
    assert t_power(4, 400.0) == 1.0  # where scipy's noncentral t gives no number


def test_welch_has_up_to_twice_the_degrees_of_freedom():
    # two groups, spreads equal, d = 0.8: 26 a side (Cohen); their difference has spread sqrt 2
    assert seeds_for_power(0.8, math.sqrt(2.0), freedom=2.0) == 26


@pytest.mark.parametrize("needed", [seeds_for_power, tasks_for_z_power])
@pytest.mark.parametrize(
    ("effect", "spread"), [(0.0, 1.0), (0.5, 0.0), (1e-9, 1.0), (float("nan"), 1.0)]
)
def test_no_effect_no_spread_or_too_many_have_no_number(needed, effect, spread):
    assert needed(effect, spread) is None


def test_tasks_of_a_z_test_by_hand():
    assert tasks_for_z_power(0.5, 1.0) == 32  # (1.959964 + 0.841621)^2 / 0.25 = 31.4
    assert tasks_for_z_power(-0.2, 1.0) == 197  # 196.2


def rejected(b, c):
    return mcnemar_p(b, c) < 0.05


def power_by_counting(n, p, q):
    """Return the share of all outcomes (b, c, rest) of n tasks that the test rejects."""
    return sum(
        math.comb(n, b) * math.comb(n - b, c) * p**b * q**c * (1 - p - q) ** (n - b - c)
        for b in range(n + 1)
        for c in range(n - b + 1)
        if rejected(b, c)
    )


@pytest.mark.parametrize(
    ("n", "p", "q"), [(1, 0.5, 0.1), (20, 0.5, 0.1), (30, 0.3, 0.05), (15, 0.8, 0.2), (12, 0.9, 0)]
)
def test_mcnemar_power_counts_every_outcome(n, p, q):
    assert mcnemar_power(n, p, q) == pytest.approx(power_by_counting(n, p, q), abs=1e-12)
    assert mcnemar_power(n, q, p) == pytest.approx(mcnemar_power(n, p, q), abs=1e-12)


def test_shares_that_are_none_have_no_power():
    with pytest.raises(ValueError, match=r"^shares 0.8 and 0.3 of the same tasks"):
        mcnemar_power(10, 0.8, 0.3)


SHARES = [(0.2, 0.1), (16 / 125, 11 / 125), (0.04, 0.0), (0.3, 0.05), (0.001, 0.0), (0.8, 0.2)]


@pytest.mark.parametrize(("p", "q"), [*SHARES, (0.55, 0.45), (1.0, 0.0)])
@pytest.mark.parametrize("power", [0.8, 0.95])
def test_the_tasks_keep_the_promise_and_one_less_does_not(p, q, power):
    n = tasks_for_power(p, q, power=power)
    assert n == tasks_for_power(q, p, power=power)
    assert mcnemar_power(n - 1, p, q) < power
    assert min(mcnemar_power(more, p, q) for more in range(n, n + 100)) >= power


def test_tasks_of_known_shares():
    # 249 tasks: power 0.80145; 248: 0.79981. Connor's approximation says 234, with 0.776.
    assert tasks_for_power(0.2, 0.1) == 249
    assert mcnemar_power(234, 0.2, 0.1) == pytest.approx(0.776, abs=5e-4)
    assert tasks_for_power(0.1, 0.1) is None
    assert tasks_for_power(0.1, 0.1 + 1 / MOST) is None


def test_case_e3_needs_over_a_thousand_tasks():
    """16 and 11 of 125, all on different tasks: 0.128 and 0.088."""
    assert tasks_for_power(16 / 125, 11 / 125) == 1101
