import pytest

from rltune.maths.power import MOST, seeds_for_power, tasks_for_power

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


def test_the_normal_takes_over_without_a_step():
    # near n = 1000: (1.96 + 0.8416)^2 / d^2 + 2 = 997 at d = 0.0888
    assert [seeds_for_power(d, 1.0) for d in (0.0888, 0.0885)] == [998, 1004]


@pytest.mark.parametrize(
    ("effect", "spread"), [(0.0, 1.0), (0.5, 0.0), (1e-9, 1.0), (float("nan"), 1.0)]
)
def test_no_effect_no_spread_or_too_many_have_no_number(effect, spread):
    assert seeds_for_power(effect, spread) is None


def test_tasks_by_hand():
    # p + q = 0.3, p - q = 0.1: (1.959964 sqrt 0.3 + 0.841621 sqrt 0.29)^2 / 0.01
    # = (1.073517 + 0.453226)^2 / 0.01 = 233.09
    assert tasks_for_power(0.2, 0.1) == 234
    assert tasks_for_power(0.1, 0.2) == 234
    assert tasks_for_power(0.1, 0.1) is None
    assert tasks_for_power(0.1, 0.1 + 1 / MOST) is None


def test_case_e3_needs_over_a_thousand_tasks():
    """16 and 11 of 125, all on different tasks: 0.128 and 0.088."""
    # (1.959964 sqrt 0.216 + 0.841621 sqrt 0.2144)^2 / 0.0016 = 1057.3
    assert tasks_for_power(16 / 125, 11 / 125) == 1058
