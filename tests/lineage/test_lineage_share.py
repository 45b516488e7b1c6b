import pytest

from rltune.errors import StoreError
from rltune.lineage.row import LineageRow
from rltune.lineage.share import share
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

METRIC = {"metric_name": "m", "metric_mode": "max"}


def row(exp_id, metric, parent="", domain="sokoban"):
    return LineageRow(
        exp_id=exp_id, status=RowStatus.KEEP, core_metric=metric, parent_exp=parent,
        baseline_exp=parent, domain=domain, **METRIC,
    )  # fmt: skip


def test_sweeps_with_the_same_trials_share_a_table_and_asking_again_adds_nothing(tmp_path):
    store = LineageStore(tmp_path / "nights.tsv", *METRIC.values())
    rows = [row("a", 0.5), row("b", 0.6, parent="a")]
    assert share(rows, store, "kl-1") == 2
    assert share([*rows, row("c", 0.4, parent="b")], store, "kl-1") == 1
    assert share([row("a", 0.55)], store, "kl-2") == 1
    assert share([], store, "kl-3") == 0
    assert [(one.exp_id, one.parent_exp) for one in store.read().rows] == [
        ("kl-1/a", ""),
        ("kl-1/b", "kl-1/a"),
        ("kl-1/c", "kl-1/b"),
        ("kl-2/a", ""),
    ]
    assert store.best().row.exp_id == "kl-1/b"


def test_a_repair_that_moved_a_parent_or_took_it_away_stops_no_sweep(tmp_path):
    """Its row was damaged, moved aside, and written again behind its children."""
    store = LineageStore(tmp_path / "nights.tsv", *METRIC.values())
    rows = [row("b", 0.6, parent="a"), row("c", 0.6, parent="gone"), row("a", 0.5)]
    assert share(rows, store, "kl-1") == 3
    assert share(rows, store, "kl-1") == 0
    found = [(one.exp_id, one.parent_exp, one.notes) for one in store.read().rows]
    assert found[:2] == [("kl-1/a", "", ""), ("kl-1/b", "kl-1/a", "")]
    assert found[2][:2] == ("kl-1/c", "")
    assert "its parent 'kl-1/gone' is not a row before it" in found[2][2]


def test_tasks_of_another_kind_are_not_ranked_together(tmp_path):
    store = LineageStore(tmp_path / "nights.tsv", *METRIC.values())
    share([row("a", 0.5)], store, "kl-1")
    with pytest.raises(StoreError, match="would mix frozen_lake and sokoban, which cannot be"):
        share([row("a", 0.9, domain="frozen_lake")], store, "slip-1")
    assert len(store.read().rows) == 1
