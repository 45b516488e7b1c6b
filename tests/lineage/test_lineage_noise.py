import pytest
from cases import each

from rltune.lineage.calibration import calibrate, calibration_lines, parse_delta, told_by_condition
from rltune.lineage.noise import (
    Outcomes,
    difference_interval,
    is_noise,
    is_progress,
    measures_of,
    outcomes_at,
    outcomes_of_run,
    scores_of,
    with_noise,
)
from rltune.lineage.row import LineageRow
from rltune.store.jsonl import append_jsonl
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialSpec

SUCCESS = "heldout/success_rate"
KEEP, BASELINE, DISCARD = RowStatus.KEEP, RowStatus.BASELINE, RowStatus.DISCARD


def row(exp_id, status=KEEP, metric=None, **changes):
    return LineageRow(exp_id=exp_id, status=status, core_metric=metric, **changes)


def outcomes(wins, n, tasks="t"):
    return Outcomes(tasks, (1.0,) * wins + (0.0,) * (n - wins))


def test_outcomes_come_from_the_gate_that_chose_the_checkpoint(tmp_path):
    trial = RunDir(tmp_path).trial("x").create()
    for step, success in ((0, [0, 0, 0]), (10, [1, 0, 1])):
        gate = {"step": step, "tasks_sha256": "t", "success": success, "fault": ["", "down", ""]}
        append_jsonl(
            trial.heldout, gate | {"reward": [2.5, 0, "NaN"], "auxiliary": {"em": [1.0, 1.0, None]}}
        )
    assert outcomes_at(trial, 10, SUCCESS) == Outcomes("t", (1.0, None, 1.0))
    assert outcomes_at(trial, 10, "heldout/reward_mean") == Outcomes("t", (2.5, None, None))
    assert outcomes_at(trial, 10, "heldout/em") == Outcomes("t", (1.0, None, 0.0))
    assert outcomes_at(trial, 5, SUCCESS) is None
    assert outcomes_at(trial, None, SUCCESS) is None
    assert outcomes_at(trial, 10, "heldout/turns") is None
    find = outcomes_of_run(RunDir(tmp_path))
    made = row("x.a2", trial_id="x", best_step=10, metric_name=SUCCESS)
    assert find(made) == Outcomes("t", (1.0, None, 1.0))
    assert find(row("y", trial_id="y", best_step=10, metric_name=SUCCESS)) is None


def test_a_metric_of_a_named_set_is_over_its_tasks():
    gate = {
        "n": 4,
        "set": ["nq", "popqa", "nq", "nq"],
        "success": [1, 1, 0, 0],
        "reward": [1.0, 1.0, 0.0, 0.0],
        "fault": ["", "", "down", ""],
        "auxiliary": {"em": [1.0, 1.0, 0.0, None], "searches": [1, 2, 3, 4]},
    }
    assert measures_of(gate) == [
        *("heldout/success_rate", "heldout/reward_mean", "heldout/em", "heldout/searches"),
        *("heldout/nq/em", "heldout/nq/success_rate"),
        *("heldout/popqa/em", "heldout/popqa/success_rate"),
    ]
    assert scores_of(gate, "heldout/nq/em") == [1.0, None, 0.0]
    assert scores_of(gate, "heldout/popqa/success_rate") == [1.0]
    assert scores_of(gate, "heldout/macro/em") is None  # a mean over sets is not one over tasks
    assert scores_of({"success": [1]}, "heldout/nq/em") is None


def test_the_same_tasks_are_paired_and_a_task_with_a_fault_is_left_out():
    ours, theirs = outcomes(60, 100), outcomes(50, 100)
    paired = difference_interval(ours, theirs)
    apart = difference_interval(ours, outcomes(50, 100, tasks="other"))
    assert paired.high - paired.low < apart.high - apart.low  # their luck is shared
    holed = Outcomes("t", (None, *ours.values[1:]))
    assert difference_interval(holed, theirs) == difference_interval(
        Outcomes("t", ours.values[1:]), Outcomes("t", theirs.values[1:])
    )
    assert difference_interval(Outcomes("t", (None,)), Outcomes("t", (1.0,))) is None


DECISIONS = [  # (wins of 100, status, how the notes begin); the best has 50 of the same tasks
    # 52: b = 2, c = 0: p = 3/102, q = 1/102: .0196 +- 1.96 * sqrt((.0392 - .0004) / 102) = .0382
    pytest.param(52, KEEP, "within noise: +0.020 in [-0.019, +0.058]; why", id="kept-within"),
    # 60: p = 11/102, q = 1/102: .0980 +- 1.96 * sqrt((.1176 - .0096) / 102) = .0638
    pytest.param(60, KEEP, "beyond noise: +0.100 in [+0.034, +0.162]; why", id="kept-beyond"),
    pytest.param(48, DISCARD, "within noise: -0.020 in [-0.058, +0.019]; why", id="worse-within"),
]


@pytest.mark.parametrize(("wins", "status", "notes"), DECISIONS)
def test_an_improvement_inside_the_interval_is_marked(wins, status, notes):
    top = row("top", BASELINE, 0.5)
    new = row(
        "new", status, wins / 100, baseline_exp="top", delta_vs_best=wins / 100 - 0.5, notes="why"
    )
    by_id = {"top": outcomes(50, 100), "new": outcomes(wins, 100)}
    made = with_noise(new, [top], lambda one: by_id[one.exp_id])
    assert (made.status, made.notes) == (status, notes)
    assert is_noise(made) == notes.startswith("within")
    assert is_progress(made, "max") == (status is KEEP and not is_noise(made))


def test_nothing_is_said_where_nothing_was_compared_and_unknown_is_said():
    first = row("a", KEEP, 0.5)
    crash = row("b", RowStatus.CRASH, 0.9, delta_vs_best=0.4, baseline_exp="a")
    for one in (first, crash):
        assert with_noise(one, [first], lambda one: outcomes(1, 2)) == one
    new = row("c", KEEP, 0.6, delta_vs_best=0.1, baseline_exp="a")
    assert with_noise(new, [first], lambda one: None).notes == "noise unknown"


PREDICTIONS = [
    ("-0.05 success", -0.05),
    ("+0.80 EM", 0.8),
    ("0.002", 0.002),
    ("about +5 pp", 0.05),
    ("\u22121e-3", -0.001),
    ("+5 %", None),
    ("+5%", None),
    ("0.01 to 0.03", None),
    ("better", None),
    ("", None),
    ("1e999", None),
    ("0.05 lower", None),  # which way is said in words
    ("drop of 0.1", None),
    ("- 0.05", None),
    ("a drop of -0.1", -0.1),
    ("success = +0.1", 0.1),
    ("<0.02", None),
    ("\u00b10.02", None),
    ("+/-0.02", None),
]


@each(("text", "value"), PREDICTIONS)
def test_a_prediction_is_exactly_one_number(text, value):
    assert parse_delta(text) == value


def test_predictions_of_seeds_that_differ_are_all_named_and_none_is_judged():
    def spec(condition, seed, text):
        return TrialSpec("t", "s", "k", condition, 1, False, seed, {}, "h", text)

    told = told_by_condition(
        [
            spec("control", 0, ""),
            spec("a", 0, "-0.05"),
            spec("a", 1, "-0.05"),
            spec("b", 0, "worse"),
            spec("b", 1, "+0.4"),
            spec("b", 2, ""),
        ]
    )
    assert told == {"a": "-0.05", "b": "worse // +0.4"}
    assert [parse_delta(text) for text in told.values()] == [-0.05, None]


def test_calibration_by_hand():
    rows = [
        row("c", BASELINE, 0.5),
        row("a", KEEP, 0.6, parent_exp="c", expected_delta="+0.05"),  # +.10: right, error .05
        row("b", DISCARD, 0.4, parent_exp="exp_c", expected_delta="+0.10"),  # -.10: wrong, .20
        row("d", DISCARD, 0.5, parent_exp="c", expected_delta="0"),  # 0: the interval holds 0
        row("i", DISCARD, 0.5, parent_exp="c", expected_delta="+0.01"),  # 0: wrong, error .01
        row("e", DISCARD, 0.5, parent_exp="c", expected_delta="up"),
        row("f", KEEP, 0.7, expected_delta="+1"),
        row("g", RowStatus.CRASH, None, parent_exp="c", expected_delta="+1"),
        row("h", KEEP, 0.7, parent_exp="c"),
    ]
    found = calibrate(rows, lambda one: outcomes(round(100 * one.core_metric), 100))
    assert [p.exp_id for p in found.predictions] == ["a", "b", "d", "i", "e", "f"]
    assert [p.has_right_sign for p in found.predictions] == [True, False, True, False, None, None]
    assert (found.right_signs, found.signs, found.waiting) == (2, 4, 1)
    assert found.mean_absolute_error == pytest.approx((0.05 + 0.2 + 0.0 + 0.01) / 4)
    assert (found.within, found.intervals) == (3, 4)  # all but b
    assert calibration_lines(found) == [
        "right sign: 2 of 4 predictions",
        "mean absolute error: 0.065 over 4, against the parent's metric",
        "inside the 95 % interval of what was observed: 3 of 4",
        "without exactly one clear number, so not judged: 1",
        "without a parent's metric to compare with: 1",
        "predicted, but the trial gave no result: 1",
    ]
    assert calibration_lines(calibrate(rows[:1], lambda one: None)) == []
