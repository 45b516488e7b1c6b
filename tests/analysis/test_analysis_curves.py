"""Curves as tidy data: every number of the trials, and means over seeds."""

import csv
import io
import math

import pytest

from rltune.analysis.curves import Point, bands_of, points_of, to_csv
from rltune.comparability.records import TrialRecord
from rltune.types import TrialSpec

SUCCESS, ENTROPY = "heldout/success_rate", "collapse/reasoning_entropy"


def record(seed, *rows, condition="kl=0.1"):
    spec = TrialSpec(f"t{seed}", "s", "k", condition, 0.1, False, seed, {}, "hash")
    return TrialRecord(spec, {}, rows)


def point(seed, value, *, step=4, metric=SUCCESS, condition="a"):
    return Point("s", condition, seed, step, metric, value)


def test_points_are_numbers_that_do_not_tell_of_the_machine():
    row = {"step": 2, SUCCESS: 0.5, "rollout/task_hash": "ab", "time": 9.0, "timing_s/eval": 1.0}
    row |= {"perf/tokens_per_s": 7.0, "budget/rollouts": 3, "flag": True}
    assert points_of([record(1, row)]) == [
        Point("s", "kl=0.1", 1, 2, SUCCESS, 0.5),
        Point("s", "kl=0.1", 1, 2, "budget/rollouts", 3.0),
    ]


def test_means_over_seeds_by_hand():
    # mean 0.5, s = 0.1, t(2, 0.975) = 4.30265: 0.5 +- 4.30265 x 0.1 / sqrt(3) = 0.5 +- 0.24841
    points = [point(seed, 0.4 + 0.1 * seed) for seed in range(3)]
    (band,) = bands_of([*points, point(0, 9.0, metric="other")], [SUCCESS])
    assert (band.condition, band.metric, band.step, band.n_seeds) == ("a", SUCCESS, 4, 3)
    assert (band.mean, band.low, band.high) == pytest.approx((0.5, 0.25159, 0.74841), abs=1e-5)


def test_two_seeds_have_an_interval_and_one_has_none():
    # mean 2, s = sqrt(2), t(1, 0.975) = 12.7062: 2 +- 12.7062 x sqrt(2) / sqrt(2) = 2 +- 12.7062
    two = [point(0, 1.0, metric=ENTROPY), point(1, 3.0, metric=ENTROPY)]
    (band,) = bands_of(two, [ENTROPY])
    assert (band.low, band.high) == pytest.approx((-10.7062, 14.7062), abs=1e-4)
    (alone,) = bands_of(two[:1], [ENTROPY])
    assert (alone.n_seeds, alone.mean, alone.low, alone.high) == (1, 1.0, None, None)


def test_a_rate_stays_in_its_bounds():
    (band,) = bands_of([point(0, 0.1), point(1, 0.9)], [SUCCESS])
    assert (band.low, band.high) == (0.0, 1.0)


def test_seeds_that_agree_are_as_uncertain_as_one_task():
    # s is at least 0.1: 0.5 +- 4.30265 x 0.1 / sqrt(3), as in the closing table
    points = [point(seed, 0.5) for seed in range(3)]
    (band,) = bands_of(points, [SUCCESS], resolutions={SUCCESS: 0.1})
    assert (band.low, band.high) == pytest.approx((0.25159, 0.74841), abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_no_seed(bad):
    (band,) = bands_of([point(0, 0.25), point(1, bad)], [SUCCESS])
    assert (band.n_seeds, band.mean) == (1, 0.25)
    assert bands_of([point(0, bad)], [SUCCESS]) == []


def test_a_step_written_twice_is_no_second_seed():
    (band,) = bands_of([point(0, 0.25), point(0, 0.75)], [SUCCESS])
    assert (band.n_seeds, band.mean) == (1, 0.75)


def test_rows_come_by_condition_then_metric_then_step():
    points = [
        point(seed, 0.5, step=step, metric=metric, condition=condition)
        for seed in (1, 0)
        for step in (8, 0)
        for condition in ("control", "a")
        for metric in (ENTROPY, SUCCESS)
    ]
    rows = [(b.condition, b.metric, b.step) for b in bands_of(points, [SUCCESS, ENTROPY])]
    assert rows == [
        (condition, metric, step)
        for condition in ("control", "a")
        for metric in (SUCCESS, ENTROPY)
        for step in (0, 8)
    ]


def test_csv_round_trips():
    text = to_csv([Point("s", 'k="1, 2"', 0, 1, SUCCESS, 0.5)])
    (row,) = csv.DictReader(io.StringIO(text))
    assert row == {
        "sweep": "s", "condition": 'k="1, 2"', "seed": "0", "step": "1", "metric": SUCCESS,
        "value": "0.5",
    }  # fmt: skip
    assert to_csv([]) == "sweep,condition,seed,step,metric,value\n"
