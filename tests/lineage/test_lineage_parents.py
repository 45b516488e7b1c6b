"""A row may be older than the row of the control that it departs from."""

from dataclasses import replace

import pytest

from rltune.lineage.calibration import calibrate
from rltune.lineage.noise import Outcomes
from rltune.lineage.parents import with_parents
from rltune.lineage.query import chain, children
from rltune.lineage.row import CHILD, LineageRow
from rltune.lineage.share import share
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

METRIC = {"metric_name": "m", "metric_mode": "max"}
BASELINE, CRASH, DISCARD = RowStatus.BASELINE, RowStatus.CRASH, RowStatus.DISCARD


def row(exp_id, condition, metric=None, **changes):
    told = {"status": RowStatus.KEEP, "sweep": "kl", "seed": 0, "job_name": "launch-0001"}
    given = {"exp_id": exp_id, "trial_id": exp_id, "condition": condition, "core_metric": metric}
    return LineageRow(**given | told | METRIC | changes)


CRASHED = row("kl=0-s0", "kl=0", status=CRASH)
EARLY = row("kl=1-s0", "kl=1", 0.45, expected_delta="-0.05", baseline_exp="")
CONTROL = row("kl=0-s0.a2", "kl=0", 0.5, status=BASELINE, baseline_exp="kl=1-s0")
ROWS = (CRASHED, EARLY, CONTROL)


def parents(rows):
    return {one.exp_id: one.parent_exp for one in with_parents(rows)}


def test_the_control_that_finishes_later_is_the_parent():
    assert parents(ROWS) == {"kl=0-s0": "", "kl=1-s0": "kl=0-s0.a2", "kl=0-s0.a2": ""}
    assert parents(ROWS[:2]) == {"kl=0-s0": "", "kl=1-s0": ""}


UNRELATED = [
    pytest.param(replace(CONTROL, seed=1), id="another-seed"),
    pytest.param(replace(CONTROL, sweep="clip"), id="another-sweep"),
    pytest.param(replace(CONTROL, status=RowStatus.PRUNED), id="a-control-that-was-pruned"),
    pytest.param(replace(CONTROL, job_name=CHILD), id="a-child"),
    pytest.param(replace(CONTROL, exp_id="kl-2/kl=0-s0.a2"), id="another-run"),
]


@pytest.mark.parametrize("control", UNRELATED)
def test_no_other_row_is_the_parent(control):
    assert parents((EARLY, control))[EARLY.exp_id] == ""


def test_what_has_a_parent_or_is_no_trial_of_a_sweep_stays_as_it_is():
    rows = (
        row("kl=2-s0", "kl=2", parent_exp="kl=1-s0"),
        row("child", "kl=1", job_name=CHILD),
        row("imported", "kl=1", sweep=""),
    )
    assert with_parents((*rows, CONTROL)) == (*rows, CONTROL)


def test_a_trial_from_another_sweep_s_model_departs_from_its_own_control_all_the_same():
    """As it does where the control had its row first."""
    early = replace(EARLY, parent_exp="warm-1/lr=3-s0")
    assert parents((early, CONTROL))["kl=1-s0"] == "kl=0-s0.a2"
    assert parents((early,))["kl=1-s0"] == "warm-1/lr=3-s0"


@pytest.fixture
def store(tmp_path):
    store = LineageStore(tmp_path / "results.tsv", *METRIC.values())
    for one in ROWS:
        store.append(one)
    return store


def test_a_table_is_read_with_parents_and_its_bytes_stay(store):
    before = store.path.read_bytes()
    rows = store.read().rows
    assert [one.parent_exp for one in rows] == ["", "kl=0-s0.a2", ""]
    assert store.read_written().rows == ROWS
    assert store.path.read_bytes() == before
    assert [one.exp_id for one in children(rows, "kl=0-s0.a2")] == ["kl=1-s0"]


def test_the_fast_way_to_a_chain_and_to_the_best_finds_the_parent_too(store):
    rows = store.read().rows
    assert store.chain("kl=1-s0") == chain(rows, "kl=1-s0")
    assert [one.exp_id for one in store.chain("kl=1-s0").rows] == ["kl=0-s0.a2", "kl=1-s0"]
    store.append(replace(EARLY, exp_id="kl=3-s0", condition="kl=3", core_metric=0.75))
    assert store.best().row.parent_exp == "kl=0-s0.a2"


def test_a_damaged_control_is_no_parent_either_way(store):
    body = store.path.read_bytes()
    store.path.write_bytes(body.replace(b"\tbaseline\t0.5\t", b"\tbaseline\tx.5\t"))
    assert [one.parent_exp for one in store.read().rows] == ["", ""]
    assert [one.exp_id for one in store.chain("kl=1-s0").rows] == ["kl=1-s0"]


def test_a_prediction_is_judged_against_the_control_that_finished_later(store):
    played = {"kl=1-s0": (1.0, 0.0, 0.0, 0.0), "kl=0-s0.a2": (1.0, 1.0, 0.0, 0.0)}
    found = calibrate(store.read().rows, lambda one: Outcomes("t", played[one.exp_id]))
    (told,) = found.predictions
    assert told.observed == pytest.approx(-0.05)  # 0.45 - 0.5
    # successes: b = 0, c = 1 of 4: (1 - 2) / 6 +- 1.96 * sqrt((3/6 - 1/36) / 6) = -.167 +- .550
    assert told.interval == pytest.approx((-0.716, 0.383), abs=1e-3)
    assert (told.has_right_sign, told.is_within) == (True, True)
    assert found.mean_absolute_error == pytest.approx(0.0)


def test_a_shared_table_says_the_same_however_many_launches_copied_into_it(store, tmp_path):
    """The copy of a row that waited for nothing: the best at record time stays named."""
    once = LineageStore(tmp_path / "once.tsv", *METRIC.values())
    share(store.read_written().rows, once, "kl-1")
    twice = LineageStore(tmp_path / "twice.tsv", *METRIC.values())
    share(ROWS[:2], twice, "kl-1")
    share(store.read_written().rows, twice, "kl-1")
    assert once.read().rows == twice.read().rows
    _, early, control = once.read().rows
    assert (early.parent_exp, control.baseline_exp) == ("kl-1/kl=0-s0.a2", "kl-1/kl=1-s0")
    assert control.notes == ""
