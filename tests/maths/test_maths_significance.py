import math

import numpy as np
import pytest
from scipy.stats import binomtest, permutation_test, ttest_ind, ttest_rel

from rltune.maths.significance import holm, mcnemar_p, normal_p, paired_t_p, sign_flip_p, welch

SIGN_FLIPS = [
    pytest.param([0.1, 0.2, 0.3], 2 / 8, id="three-of-one-sign"),  # all, or all negative
    pytest.param([1, 1, 1, 1, 1], 2 / 32, id="five-of-one-sign"),
    # |sum| = 2 of 1 2 -1: 1+2-1 and 1+2+1 (4) and 2-1+1 and their negatives: 6 of 8
    pytest.param([1, 2, -1], 6 / 8, id="one-against"),
    pytest.param([0.0, 0.0], 1.0, id="no-difference"),
    pytest.param([0.4], 1.0, id="one"),
]


@pytest.mark.parametrize(("differences", "by_hand"), SIGN_FLIPS)
def test_sign_flips_by_hand(differences, by_hand):
    assert sign_flip_p(differences) == pytest.approx(by_hand)


def test_equal_sums_count_in_spite_of_rounding():
    # in tenths: 3+3+2-2 and 3+3-2+2 reach 6, 3+3+2+2 is 10; with their negatives 6 of 16.
    # As floats one 6 is a hair below the other.
    assert sign_flip_p([-0.3, -0.3, -0.2, 0.2]) == 6 / 16


def test_sign_flips_are_scipys_permutation_test():
    d = list(np.random.default_rng(0).normal(0.4, 1, 9))
    found = permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(d) == pytest.approx(found.pvalue)


def test_many_seeds_are_drawn_and_near_the_exact_value():
    d = list(np.random.default_rng(0).normal(0.45, 1, 21))
    assert sign_flip_p(d) == sign_flip_p(d)
    assert sign_flip_p(d) == pytest.approx(ttest_rel(d, [0] * 21).pvalue, abs=0.01)
    assert sign_flip_p([1.0] * 40) == pytest.approx(1e-5, rel=1e-3)  # never 0


def test_no_differences_have_no_p():
    assert math.isnan(sign_flip_p([]))
    assert math.isnan(paired_t_p([0.3]))


def test_paired_t_is_scipys():
    a, b = [0.6, 0.7, 0.8, 0.55], [0.5, 0.65, 0.6, 0.5]
    d = [x - y for x, y in zip(a, b, strict=True)]
    assert paired_t_p(d) == pytest.approx(ttest_rel(a, b).pvalue)


def test_paired_t_by_hand():
    # mean 0.2, s = 0.1, t = 0.2 / (0.1 / sqrt 3) = 3.4641; p with 2 df = 1 - t / sqrt(t^2 + 2)
    assert paired_t_p([0.1, 0.2, 0.3]) == pytest.approx(1 - 3.4641016 / math.sqrt(14))


def test_seeds_that_agree_have_the_spread_of_one_task():
    # s = 1/10: t = 0.1 / (0.1 / sqrt 3) = 1.7321; p = 1 - 1.7321 / sqrt(5)
    assert paired_t_p([0.1] * 3, resolution=0.1) == pytest.approx(1 - math.sqrt(3 / 5))


def test_without_any_spread_nothing_follows():
    assert paired_t_p([0.5] * 3) == 1.0
    assert paired_t_p([0.3, 0.1 + 0.2, 0.3]) == 1.0  # the same but for rounding
    assert paired_t_p([0.0, 0.0]) == 1.0


def test_welch_is_scipys():
    a, b = [0.6, 0.7, 0.8, 0.55], [0.5, 0.9, 0.1]
    found = welch(a, b)
    theirs = ttest_ind(a, b, equal_var=False)
    assert found.p == pytest.approx(theirs.pvalue)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval()))
    assert found.difference == pytest.approx(np.mean(a) - np.mean(b))


def test_welch_refuses_what_it_cannot_judge():
    with pytest.raises(ValueError, match=r"^1 and 2 values: each side needs two or more$"):
        welch([1], [1, 2])
    with pytest.raises(
        ValueError, match=r"^neither side has any spread, so chance cannot be estimated$"
    ):
        welch([1, 1], [2, 2])


def test_mcnemar_by_hand():
    assert mcnemar_p(5, 0) == 2 / 32
    assert mcnemar_p(3, 1) == 10 / 16  # 2 (1 + 4) / 2^4
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(4, 4) == 1.0
    assert mcnemar_p(16, 11) == pytest.approx(binomtest(11, 27).pvalue)
    assert mcnemar_p(2000, 1800) == pytest.approx(binomtest(1800, 3800).pvalue)


def test_normal_by_hand():
    assert normal_p(1.959963984540054, 1.0) == pytest.approx(0.05)
    assert normal_p(-1.959963984540054, 1.0) == pytest.approx(0.05)
    assert normal_p(1.0, 0.0) == 1.0


HOLM = [
    # sorted 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 = 0.02, 0.03, 0.06, 0.04 -> 0.06
    pytest.param([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02], id="four"),
    pytest.param([0.5, 0.6], [1.0, 1.0], id="at-most-one"),
    pytest.param([0.02], [0.02], id="one-stays"),
    pytest.param([0.01, math.nan, 0.02], [0.02, math.nan, 0.02], id="nan-is-no-comparison"),
    pytest.param([], [], id="none"),
]


@pytest.mark.parametrize(("given", "by_hand"), HOLM)
def test_holm_by_hand(given, by_hand):
    assert holm(given) == pytest.approx(by_hand, nan_ok=True)
