"""Named evaluation sets in an export: rows by hand, the figure's data, and what is left out."""

from dataclasses import fields

import pytest

from rltune.analysis.benchmarks import benchmark_rows
from rltune.analysis.tables import HistoryRow, TrialRow
from rltune.report.figures.data_benchmarks import benchmarks_data
from rltune.report.figures.make import figure_data
from rltune.report.figures.notes import label_of
from rltune.report.figures.records import Benchmarks, LeftOut
from rltune.report.figures.source import About, Tables

ABOUT = About("QA", "pass", (), "", (), (), 4, 4, "mean")


def trial(condition, seed, *, final=0.5):
    empty = {field.name: None for field in fields(TrialRow)}
    return TrialRow(
        **empty
        | {
            **{"condition": condition, "seed": seed, "trial_id": f"{condition}-{seed}"},
            **{"is_control": condition == "a", "final": final, "final_step": 20, "mark": "ok"},
            **{"sweep": "qa", "run": "qa-1", "axis": "k", "status": "done", "reason": ""},
            **{"axis_value": condition, "planned_steps": 20, "metric": "heldout/macro/em"},
            **{"same_run_as": "", "heldout_tasks": 20},
        }
    )


def number(condition, seed, metric, value, *, step=20):
    name = f"{condition}-{seed}"
    return HistoryRow(
        name, condition, seed, step, None, None, None, f"heldout/{metric}", value, "", "ok"
    )


TRIALS = (trial("a", 0), trial("a", 1), trial("b", 0), trial("b", 1, final=None))
HISTORY = (
    number("a", 0, "nq/em", 0.2),
    number("a", 0, "nq/em", 0.9, step=10),  # not the last gate
    number("a", 0, "nq/f1", 0.3),
    number("a", 0, "macro/em", 0.25),
    number("a", 0, "failure/wrong", 0.7),  # no measure of a set
    number("a", 1, "nq/em", 0.4),
    number("a", 1, "nq/f1", None),  # faults took it
    number("a", 1, "macro/em", 0.35),
    number("b", 0, "nq/em", 0.5),
    number("b", 1, "nq/em", 0.6),  # did not finish
)


def test_rows_are_means_over_finished_seeds_at_the_last_gate():
    rows = [
        (row.benchmark, row.measure, row.condition, row.n_seeds, row.value, row.ci_lo)
        for row in benchmark_rows(TRIALS, HISTORY)
    ]
    # mean 0.3, s = 0.2 / sqrt 2, t(1) = 12.706: 0.3 - 12.706 * 0.1 is below 0, where no rate lies
    assert rows == [
        ("nq", "em", "a", 2, pytest.approx(0.3), 0.0),
        ("nq", "em", "b", 1, 0.5, None),
        ("nq", "f1", "a", 1, 0.3, None),
        ("macro", "em", "a", 2, pytest.approx(0.3), 0.0),
    ]


def test_the_figure_has_a_panel_a_measure_and_a_point_a_row():
    data = benchmarks_data(Tables(ABOUT, TRIALS, HISTORY, ()))
    assert isinstance(data, Benchmarks)
    assert (data.measures, data.labels) == (("em", "f1"), ("exact match", "F1"))
    assert [(p.benchmark, p.measure, p.condition) for p in data.points] == [
        ("nq", "em", "a"),
        ("nq", "em", "b"),
        ("nq", "f1", "a"),
        ("macro", "em", "a"),
    ]
    assert "macro: mean over the sets." in data.head.caption


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        ("heldout/nq/f1", "held-out F1 (nq)"),
        ("heldout/macro/em", "held-out exact match (macro)"),
    ],
)
def test_a_metric_of_a_set_has_a_name_for_readers(metric, label):
    assert label_of(metric) == label


def test_an_interval_is_drawn_from_three_seeds_on():
    trials = tuple(trial("a", seed) for seed in range(3))
    history = tuple(number("a", seed, "nq/f1", 0.4 + seed / 10) for seed in range(3))
    (point,) = benchmarks_data(Tables(ABOUT, trials, history, ())).points
    # mean 0.5, s = 0.1, t(2) = 4.303: half is 4.303 * 0.1 / sqrt 3 = 0.2484
    assert (point.value, point.low, point.high) == pytest.approx((0.5, 0.2516, 0.7484), abs=1e-4)
    assert all(
        one.low is None for one in benchmarks_data(Tables(ABOUT, TRIALS, HISTORY, ())).points
    )


def test_without_a_finished_trial_it_is_left_out():
    trials = (trial("a", 0, final=None),)
    assert benchmarks_data(Tables(ABOUT, trials, HISTORY, ())) == LeftOut(
        "benchmarks", "no finished trial was measured on the sets of env.eval"
    )


def test_a_sweep_without_sets_has_no_such_figure():
    assert "benchmarks" not in figure_data(Tables(ABOUT, (), (), ()))


def test_it_is_drawn():
    pytest.importorskip("matplotlib")
    from rltune.report.figures.draw import draw

    data = benchmarks_data(Tables(ABOUT, TRIALS, HISTORY, ()))
    svg = draw(data, kind="svg").decode()
    assert all(text in svg for text in ("exact match", "F1", ">nq<", ">macro<"))
    assert "b, nq: em 0.5" in svg
