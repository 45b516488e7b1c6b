import itertools
import math

import pytest
from cases import each

from rltune.gate import (
    GateResult,
    choose_best,
    difference_interval,
    find_inversion,
    is_gate_step,
    set_metric,
    ties,
    wilson_interval,
)


def gate(step, metric):
    return GateResult(step=step, metric=metric, n=10, successes=0)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("heldout/nq/f1", ("nq", "f1")),
        ("heldout/macro/success_rate", ("macro", "success_rate")),
        ("heldout/f1", None),
        ("heldout/failure/wrong", None),
    ],
)
def test_which_metrics_are_of_a_set(metric, expected):
    assert set_metric(metric) == expected


def test_the_gate_evaluates_at_zero_every_n_and_at_the_last_step():
    assert [s for s in range(24) if is_gate_step(s, every=10, last=23)] == [0, 10, 20, 23]
    assert [s for s in range(21) if is_gate_step(s, every=10, last=20)] == [0, 10, 20]
    assert [s for s in range(4) if is_gate_step(s, every=100, last=3)] == [0, 3]
    assert is_gate_step(0, every=5, last=0)


@pytest.mark.parametrize(("step", "every", "last"), [(1, 0, 5), (6, 2, 5), (-1, 2, 5)])
def test_an_impossible_gate_step_is_refused(step, every, last):
    with pytest.raises(ValueError, match=r"at least 1|outside 0\.\.5"):
        is_gate_step(step, every=every, last=last)


CASES = [
    pytest.param([0.1, 0.5, 0.3], "max", 1, id="max"),
    pytest.param([0.1, 0.5, 0.3], "min", 0, id="min-can-be-the-start"),
    pytest.param([0.6, 0.5, 0.3], "max", 0, id="training-only-did-harm"),
    pytest.param([0.1, 0.5, 0.5], "max", 1, id="tie-is-the-earliest"),
    pytest.param([math.nan, 0.2, 0.1], "max", 1, id="nan-first"),
    pytest.param([0.2, math.nan, 0.1], "max", 0, id="nan-later"),
    pytest.param([0.2, math.nan, 0.1], "min", 2, id="nan-min"),
    pytest.param([0.2, math.inf, -math.inf], "max", 0, id="infinite-never-wins"),
]


@each(("metrics", "mode", "winner"), CASES)
def test_choose_best_does_not_depend_on_the_order_of_the_history(metrics, mode, winner):
    history = [gate(step, metric) for step, metric in enumerate(metrics)]
    for order in itertools.permutations(history):
        assert choose_best(order, mode=mode).step == winner


@pytest.mark.parametrize("history", [[], [gate(0, math.nan)]])
def test_nothing_to_choose_is_an_error(history):
    with pytest.raises(ValueError, match=f"^none of {len(history)} gate evaluations has a finite"):
        choose_best(history, mode="max")


def test_an_unknown_direction_is_an_error():
    with pytest.raises(
        ValueError, match=r"^mode 'up' is not a direction\. Choose 'max' or 'min'\.$"
    ):
        choose_best([gate(0, 1.0)], mode="up")


WILSON = [  # z = 1.959964, z^2 = 3.841459
    # p = .8: centre (.8 + .192073) / 1.384146 = .716740, half 1.416010 * sqrt(.0256036) = .226578
    pytest.param(8, 10, 0.490162, 0.943318, id="eight-of-ten"),
    # high = z^2 / (n + z^2) = 3.841459 / 13.841459
    pytest.param(0, 10, 0.0, 0.277533, id="none"),
    pytest.param(10, 10, 0.722467, 1.0, id="all"),  # the mirror image of none
    # centre .5, half = z/2 / sqrt(n + z^2) = .979982 / sqrt(103.841459)
    pytest.param(50, 100, 0.403832, 0.596168, id="half"),
    pytest.param(0, 0, 0.0, 1.0, id="no-trials"),
]


@pytest.mark.parametrize(("successes", "n", "low", "high"), WILSON)
def test_wilson_by_hand(successes, n, low, high):
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=2e-6)


def test_wilson_narrows_with_less_confidence_and_stays_in_the_unit_interval():
    wide, narrow = wilson_interval(3, 9), wilson_interval(3, 9, confidence=0.5)
    assert wide.low < narrow.low < 3 / 9 < narrow.high < wide.high
    for n in range(1, 40):
        for k in range(n + 1):
            low, high = wilson_interval(k, n)
            assert 0.0 <= low <= k / n <= high <= 1.0


@pytest.mark.parametrize(
    ("k", "n", "confidence"), [(-1, 3, 0.9), (4, 3, 0.9), (1, 3, 1.0), (1, 3, 0.0)]
)
def test_wilson_refuses_the_impossible(k, n, confidence):
    with pytest.raises(ValueError, match=r"impossible|outside \(0, 1\)"):
        wilson_interval(k, n, confidence=confidence)


def solved(step, successes, n=100):
    return GateResult(step, successes / n, n, successes)


def test_ties_are_the_other_gates_with_the_chosen_metric_by_step():
    history = [solved(20, 30), solved(0, 10), solved(10, 30), solved(5, 30)]
    assert choose_best(history, mode="max").step == 5
    assert [gate.step for gate in ties(history, mode="max")] == [10, 20]
    assert ties(history, mode="min") == ()


def test_the_interval_of_a_difference_is_newcombes():
    """His table II: 56/70 against 48/80, method 10, gives 0.0524 to 0.3339."""
    low, high = difference_interval((48, 80), (56, 70))
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)
    down = difference_interval((56, 70), (48, 80))
    assert (round(down.low, 4), round(down.high, 4)) == (-0.3339, -0.0524)


def test_nothing_tried_says_nothing_of_a_difference():
    assert difference_interval((0, 0), (5, 5)) == (-1.0, 1.0)


RISING = [(20, 100)] * 2 + [(60, 100)] * 2


def test_training_up_and_heldout_down_is_an_inversion():
    found = find_inversion([solved(0, 60), solved(4, 30)], RISING, window=10)
    assert found is not None
    assert found.heldout == (0.6, 0.3)
    assert found.pool == (0.2, 0.6)  # two steps each: 40 and 120 of 200
    assert found.heldout_change == difference_interval((60, 100), (30, 100))
    assert found.pool_change == difference_interval((40, 200), (120, 200))


@each(
    ("gates", "pool"),
    [
        ([solved(0, 60), solved(4, 55)], RISING),  # inside the noise of 100 tasks
        ([solved(0, 30), solved(4, 60)], RISING),  # held-out rises, too
        ([solved(0, 60), solved(4, 30)], RISING[::-1]),  # training falls, too
        ([solved(0, 60), solved(4, 30)], [(20, 100), (22, 100)]),  # inside the noise
        ([solved(0, 60)], RISING),
        ([solved(0, 60), solved(4, 30)], [(1, 100)]),
        ([solved(0, 60), solved(4, 30)], []),
    ],
)
def test_no_inversion(gates, pool):
    assert find_inversion(gates, pool) is None


def test_only_the_ends_of_training_count():
    pool = [(20, 100), (99, 100), (1, 100), (60, 100)]
    found = find_inversion([solved(0, 60), solved(4, 30)], pool, window=1)
    assert found is not None
    assert found.pool == (0.2, 0.6)
