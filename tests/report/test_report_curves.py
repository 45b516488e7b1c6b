"""Curves as tidy data: every number of the trials."""

import csv
import io

from rltune.report.curves import Point, points_of, to_csv
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
        Point("s", "kl=0.1", 1, 2, SUCCESS, 0.5),
        Point("s", "kl=0.1", 1, 2, "budget/rollouts", 3.0),
    ]


def test_csv_has_a_header_and_quotes_what_needs_it():
    text = to_csv([Point("s", 'k="1, 2"', 0, 4, SUCCESS, 0.5)])
    (row,) = csv.DictReader(io.StringIO(text))
    assert row == {
        "sweep": "s", "condition": 'k="1, 2"', "seed": "0", "step": "4", "metric": SUCCESS,
        "value": "0.5",
    }  # fmt: skip
    assert to_csv([]) == "sweep,condition,seed,step,metric,value\n"
