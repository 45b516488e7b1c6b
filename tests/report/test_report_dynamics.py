"""Curves as tidy data, and the figure that is drawn from them."""

import csv
import io

import pytest

from rltune.report.curves import Band, Point, bands_of, points_of, to_csv
from rltune.report.dynamics import TRIO, Lines, draw_dynamics
from rltune.spec.records import TrialRecord
from rltune.types import TrialSpec

SUCCESS = "heldout/success_rate"


def record(seed, *rows, condition="kl=0.1"):
    spec = TrialSpec(f"t{seed}", "s", "k", condition, 0.1, False, seed, {}, "hash")
    return TrialRecord(spec, {}, rows)


def test_points_are_numbers_that_do_not_tell_of_the_machine():
    row = {"step": 2, SUCCESS: 0.5, "rollout/task_hash": "ab", "time": 9.0, "timing_s/eval": 1.0}
    row |= {"perf/tokens_per_s": 7.0, "budget/rollouts": 3, "flag": True}
    assert points_of([record(1, row)]) == [
        Point("kl=0.1", 1, 2, SUCCESS, 0.5),
        Point("kl=0.1", 1, 2, "budget/rollouts", 3.0),
    ]


def test_means_over_seeds_by_hand():
    # mean 0.5, s = 0.1, t(2, 0.975) = 4.30265: 0.5 +- 4.30265 x 0.1 / sqrt(3) = 0.5 +- 0.24841
    points = [Point("a", seed, 4, SUCCESS, 0.4 + 0.1 * seed) for seed in range(3)]
    (band,) = bands_of([*points, Point("a", 0, 4, "other", 9.0)], [SUCCESS])
    assert (band.condition, band.metric, band.step, band.n_seeds) == ("a", SUCCESS, 4, 3)
    assert (band.mean, band.low, band.high) == pytest.approx((0.5, 0.25159, 0.74841), abs=1e-5)


def test_a_rate_stays_in_its_bounds_and_one_seed_has_no_interval():
    far = [Point("a", 0, 0, SUCCESS, 0.1), Point("a", 1, 0, SUCCESS, 0.9)]
    (band,) = bands_of(far, [SUCCESS])
    assert (band.low, band.high) == (0.0, 1.0)
    (alone,) = bands_of(far[:1], [SUCCESS])
    assert (alone.n_seeds, alone.low, alone.high) == (1, None, None)


def test_csv_round_trips_and_leaves_an_unknown_interval_empty():
    text = to_csv([Band('k="1, 2"', SUCCESS, 0, 1, 0.5, None, None)], Band)
    (row,) = csv.DictReader(io.StringIO(text))
    assert row == {
        "condition": 'k="1, 2"', "metric": SUCCESS, "step": "0", "n_seeds": "1",
        "mean": "0.5", "low": "", "high": "",
    }  # fmt: skip
    assert to_csv([], Point) == "condition,seed,step,metric,value\n"


def bands(n_seeds=3):
    return [
        Band(name, metric, step, n_seeds, 0.1 * step, 0.0, 0.9)
        for name in ("control", "other")
        for metric in TRIO
        for step in (0, 4)
    ]


def test_the_figure_says_what_a_reader_must_know():
    lines = Lines("KL on Sokoban", ["2 seeds: no claim can be made."], 0.18, 1.0, 0.125)
    drawn = draw_dynamics(bands(), lines, kind="svg")
    assert drawn == draw_dynamics(bands(), lines, kind="svg") or b"<svg" in drawn
    texts = drawn.decode()
    for said in ("KL on Sokoban", "no claim can be made", "random floor", "ceiling", "chance"):
        assert said in texts
    for said in ("control", "other", "held-out success", "reasoning entropy, nats"):
        assert said in texts
    assert draw_dynamics(bands(), lines, kind="png").startswith(b"\x89PNG")


def test_bands_are_drawn_from_three_seeds_on():
    lines = Lines("t")
    few, enough = (draw_dynamics(bands(n), lines, kind="svg") for n in (2, 3))
    assert few.count(b"FillBetween") == 0 < enough.count(b"FillBetween")
