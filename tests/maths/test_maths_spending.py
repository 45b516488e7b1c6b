import math

import pytest
from scipy.stats import multivariate_normal, norm

from rltune.maths.spending import obrien_fleming_spending, spending_boundaries

TWELVE = [n / 12 for n in range(3, 13)]
# R's rpact 3.3.4: getDesignGroupSequential(alpha, sided = 1, informationRates, typeOfDesign =
# "asOF", tolerance = 1e-10)$criticalValues; the first is also the table of gsDesign (sfLDOF).
RPACT = [
    (
        0.025,
        [0.2, 0.4, 0.6, 0.8, 1.0],
        [4.87688495, 3.35701192, 2.68028006, 2.28981677, 2.03103206],
    ),
    (0.05, [0.25, 0.5, 0.75, 1.0], [3.74955184, 2.53994257, 2.01606985, 1.72017707]),
    (0.025, [0.33, 0.67, 1.0], [3.73066529, 2.50387136, 1.99370986]),
    (0.025 / 7, [0.3, 0.5, 0.6, 1.0], [5.19216455, 3.95828871, 3.60394299, 2.69567743]),
    (
        0.025,
        TWELVE,
        [
            *(4.33263365, 3.71654523, 3.30082159, 2.99812856, 2.76557805),
            *(2.57983621, 2.42709692, 2.29863364, 2.18863466, 2.09306357),
        ],
    ),
    (
        0.025 / 3,
        TWELVE,
        [
            *(5.14796463, 4.42422747, 3.93260588, 3.57319979, 3.29654668),
            *(3.07536955, 2.89340040, 2.74031065, 2.60920376, 2.49528238),
        ],
    ),
]


def boundaries(information, level):
    return spending_boundaries(
        information, [obrien_fleming_spending(t / information[-1], level) for t in information]
    )


@pytest.mark.parametrize(("level", "information", "values"), RPACT)
def test_the_boundaries_of_rpact(level, information, values):
    # rpact's own quadrature is good to about 1e-6 at ten looks.
    assert boundaries(information, level) == pytest.approx(values, abs=2e-6)


def test_what_is_spent_at_first_and_in_all():
    assert obrien_fleming_spending(1.0, 0.025) == pytest.approx(0.025)
    assert obrien_fleming_spending(0.2, 0.025) == pytest.approx(5.39e-7, rel=0.01)


def test_one_look_is_the_fixed_test():
    assert spending_boundaries([7], [0.025]) == pytest.approx([1.959963985])


def test_two_looks_cross_with_just_the_error_that_was_spent():
    """Against the bivariate normal: P(Z_1 < b_1, Z_2 < b_2) with correlation sqrt(1/2)."""
    first, second = spending_boundaries([1.0, 2.0], [0.01, 0.04])
    joint = multivariate_normal(cov=[[1.0, math.sqrt(0.5)], [math.sqrt(0.5), 1.0]])
    assert 1.0 - norm.cdf(first) == pytest.approx(0.01)
    assert 1.0 - joint.cdf([first, second]) == pytest.approx(0.04, abs=1e-5)


def test_only_the_ratios_of_the_information_count():
    assert boundaries([3, 5, 9], 0.025) == pytest.approx(boundaries([0.3, 0.5, 0.9], 0.025))


def test_a_look_without_anything_to_spend_is_never_reached():
    first, second, third = spending_boundaries([1, 2, 3], [0.0, 0.01, 0.01])
    assert (first, third) == (math.inf, math.inf)
    assert second == pytest.approx(norm.isf(0.01))


@pytest.mark.parametrize(
    ("information", "spent", "message"),
    [
        ([1, 2], [0.01], "2 looks, and error spent at 1"),
        ([2, 2], [0.01, 0.02], "information must grow"),
        ([0, 2], [0.01, 0.02], "information must grow"),
        ([1, 2], [0.02, 0.01], "never falls"),
        ([1], [1.0], r"stays in \[0, 1\)"),
    ],
)
def test_looks_that_cannot_be(information, spent, message):
    with pytest.raises(ValueError, match=message):
        spending_boundaries(information, spent)


@pytest.mark.parametrize(("fraction", "level"), [(0.0, 0.05), (1.1, 0.05), (0.5, 0.0), (0.5, 1.0)])
def test_what_cannot_be_spent(fraction, level):
    with pytest.raises(ValueError, match="is outside"):
        obrien_fleming_spending(fraction, level)
