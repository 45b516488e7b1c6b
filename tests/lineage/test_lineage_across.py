"""A lineage that grows over sweeps: parents in the tables of other runs."""

import io

import pytest

from rltune.lineage.across import chain_across, parent_row
from rltune.lineage.row import CHILD, RERUN, LineageRow
from rltune.lineage.share import row_of_trial, share
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus


def table(runs, run, *rows):
    store = LineageStore(runs / run / "results.tsv", "m", "max")
    store.append_many(rows)
    return store


def of(name, parent="", status=RowStatus.KEEP, **more):
    given = {"metric_name": "m", "metric_mode": "max", "core_metric": 0.5, **more}
    return LineageRow(exp_id=name, parent_exp=parent, status=status, **given)


@pytest.fixture
def three(tmp_path):
    """The third run grew from the second, and that from the first."""
    table(tmp_path, "a-1", of("root"), of("grown", "root"))
    table(tmp_path, "b-2", of("control", "a-1/grown"), of("better", "control"))
    return table(tmp_path, "c-3", of("start", "b-2/better"), of("best", "start"))


def ids(rows):
    return [one.exp_id for one in rows]


def test_the_chain_goes_on_in_the_tables_of_other_runs(three):
    chain = chain_across(three, "best")
    assert ids(chain.rows) == [
        *("a-1/root", "a-1/grown", "b-2/control", "b-2/better", "start", "best")
    ]
    assert (chain.missing, chain.cycle, chain.skipped) == ("", (), ())


def test_a_parent_that_was_not_kept_is_left_out_and_named(tmp_path):
    table(tmp_path, "a-1", of("root"), of("worse", "root", RowStatus.DISCARD))
    store = table(tmp_path, "b-2", of("control", "a-1/worse"))
    chain = chain_across(store, "control")
    assert ids(chain.rows) == ["a-1/root", "control"]
    assert ids(chain.skipped) == ["a-1/worse"]


def test_a_child_or_a_repetition_is_not_the_row_of_a_condition(tmp_path):
    """They bear its label, and their config may differ from it in any other key."""
    rows = [
        of("child", condition="kl=0.1", seed=1, job_name=CHILD),
        of("again", condition="kl=0.1", seed=0, job_name=RERUN, status=RowStatus.DISCARD),
        of("own", condition="kl=0.1", seed=0, job_name="launch-0001"),
    ]
    table(tmp_path, "a-1", *rows)
    assert parent_row(tmp_path, "a-1/kl=0.1", 0) == "a-1/own"
    assert parent_row(tmp_path, "a-1/kl=0.1", 1) == "a-1/own"
    assert parent_row(tmp_path, "a-1/kl=0.1", None) == "a-1/own"
    assert parent_row(tmp_path, "a-1/child", 1) == "a-1/child"


@pytest.mark.parametrize("parent", ["gone-9/x", "a-1/nobody"])
def test_a_parent_that_is_not_there_is_named(tmp_path, parent):
    table(tmp_path, "a-1", of("root"))
    chain = chain_across(table(tmp_path, "b-2", of("control", parent)), "control")
    assert (ids(chain.rows), chain.missing) == (["control"], parent)


def test_runs_that_grew_from_each_other_end(tmp_path):
    table(tmp_path, "a-1", of("one", "b-2/two"))
    store = table(tmp_path, "b-2", of("two", "a-1/one"))
    chain = chain_across(store, "two")
    assert chain.cycle == ("a-1/one", "b-2/two", "a-1/one")


def test_a_shared_table_links_the_sweeps_that_it_holds(tmp_path, three):
    shared = LineageStore(tmp_path / "all.tsv", "m", "max")
    for run in ("a-1", "b-2", "c-3"):
        share(LineageStore.open(tmp_path / run / "results.tsv").read().rows, shared, run)
    chain = shared.chain("c-3/best")
    assert ids(chain.rows) == [
        *("a-1/root", "a-1/grown", "b-2/control", "b-2/better", "c-3/start", "c-3/best")
    ]


def test_a_shared_table_names_a_parent_that_it_does_not_hold(tmp_path, three):
    shared = LineageStore(tmp_path / "all.tsv", "m", "max")
    share(three.read().rows, shared, "c-3")
    (first, _) = shared.read().rows
    assert first.parent_exp == ""
    assert "its parent 'b-2/better' is not a row before it" in first.notes


def test_the_row_of_a_trial_is_that_of_its_last_attempt(tmp_path):
    rows = (of("t", trial_id="t", status=RowStatus.CRASH), of("t.a2", trial_id="t"))
    store = table(tmp_path, "a-1", *rows)
    assert row_of_trial(store.path, "t") == "a-1/t.a2"
    assert row_of_trial(store.path, "other") == "a-1/other"
    assert row_of_trial(tmp_path / "none-0" / "results.tsv", "t") == "none-0/t"


def test_the_views_say_that_the_root_grew_from_another_run(tmp_path):
    from rich.console import Console

    from rltune.report.render_lineage import chain_view

    store = table(tmp_path, "b-2", of("control", "gone-9/x"))
    console = Console(width=120, file=io.StringIO())
    console.print(chain_view(chain_across(store, "control")))
    said = console.file.getvalue()
    assert "The root grew from gone-9/x, whose table is not beside this one." in said
    assert "broken" not in said
