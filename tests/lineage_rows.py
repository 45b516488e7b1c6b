"""Rows of a lineage for the folder of a finished sweep."""

from run_folders import CONTROL, TREATED

from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus


def add_lineage(writer):
    """Write a root, a row that crashed and the best one to results.tsv; return their ids."""
    trials = ((CONTROL, 0), (TREATED, 1), (TREATED, 0))
    root, crash, best = (writer.spec(label, seed).trial_id for label, seed in trials)
    store = LineageStore(writer.run.results, "heldout/success_rate", "max")
    measured = {"metric_name": store.metric_name, "metric_mode": store.metric_mode}
    store.append_many([
        LineageRow(exp_id=root, status=RowStatus.BASELINE, core_metric=0.5, **measured),
        LineageRow(
            exp_id=crash, status=RowStatus.CRASH, parent_exp=root, notes="no memory", **measured,
        ),
        LineageRow(
            exp_id=best, status=RowStatus.KEEP, parent_exp=crash, core_metric=0.6,
            delta_vs_best=0.1, hypothesis="a <weak> tie helps", notes="beyond noise", **measured,
        ),
    ])  # fmt: skip
    return root, crash, best
