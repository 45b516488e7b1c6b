import pytest

from rltune.errors import StoreError
from rltune.lineage.autoresearch import VAL_BPB, read_autoresearch
from rltune.lineage.importing import import_into
from rltune.lineage.read import Metric
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

LOG = """commit\tval_bpb\tmemory_gb\tstatus\tdescription
a1b2c3d\t0.997900\t44.0\tkeep\tbaseline
b2c3d4e\t0.993200\t44.2\tkeep\tincrease LR to 0.04
c3d4e5f\t1.005000\t44.0\tdiscard\tswitch to "GeLU"\tactivation
d4e5f6a\t0.000000\t0.0\tCRASH\tdouble model width (OOM)

b2c3d4e\t0.992000\t44.2\tkeep\tsame commit, another seed
e5\tsomething\t1.0\tkeep\tx
"""


@pytest.fixture
def found(tmp_path):
    path = tmp_path / "results.tsv"
    path.write_text(LOG)
    return path, read_autoresearch(path)


def test_rows_hang_on_the_last_kept_commit(found):
    rows = [row for _, row in found[1].rows]
    assert [(row.exp_id, row.parent_exp) for row in rows] == [
        ("a1b2c3d", ""),
        ("b2c3d4e", "a1b2c3d"),
        ("c3d4e5f", "b2c3d4e"),
        ("d4e5f6a", "b2c3d4e"),
        ("b2c3d4e.2", "b2c3d4e"),
    ]
    assert rows[1].delta_vs_best == pytest.approx(0.9932 - 0.9979)
    assert rows[2].delta_vs_best == pytest.approx(1.005 - 0.9932)
    assert rows[2].hypothesis == 'switch to "GeLU"\tactivation'
    assert rows[0].notes == "memory_gb 44.0"


def test_the_crash_sentinel_is_missing_and_not_the_best_of_all(found, tmp_path):
    _, read = found
    store = LineageStore(tmp_path / "ours.tsv", *VAL_BPB)
    import_into(store, read)
    crash = store.read().rows[3]
    assert (crash.status, crash.core_metric, crash.val_bpb, crash.notes) == (
        RowStatus.CRASH, None, None, "memory_gb 0.0",
    )  # fmt: skip
    assert store.best().row.exp_id == "b2c3d4e.2"
    assert [str(problem).partition("tsv:")[2] for problem in read.problems] == [
        "8: 'something' is not a number. The record is skipped."
    ]


def test_another_header_is_refused(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("commit\tval_bpb\tstatus\n")
    with pytest.raises(StoreError, match="this is not an autoresearch table"):
        read_autoresearch(path)
    with pytest.raises(StoreError, match="there is no such file"):
        read_autoresearch(tmp_path / "none.tsv")


def test_its_kin_measure_something_else_and_repeat_the_commit_of_what_they_discard(tmp_path):
    path = tmp_path / "results.tsv"
    path.write_text(
        "commit\tval_acc\tstatus\tdescription\n"
        "c2450ad\t0.70\tkeep\tbaseline\n"
        "7436138\t0.75\tkeep\tlog-transform\n"
        "7436138\t0.71\tdiscard\tcar age\n"
        "7436138\t0.72\tdiscard\tmileage\n"
    )
    rows = [row for _, row in read_autoresearch(path, Metric("val_acc", "max")).rows]
    assert [row.exp_id for row in rows] == ["c2450ad", "7436138", "7436138.2", "7436138.3"]
    assert [row.parent_exp for row in rows] == ["", "c2450ad", "7436138", "7436138"]
    assert [row.notes for row in rows] == [""] * 4
    assert rows[3].delta_vs_best == pytest.approx(0.72 - 0.75)
    assert (rows[3].core_metric, rows[3].val_bpb, rows[3].metric_mode) == (0.72, None, "max")
