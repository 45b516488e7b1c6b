"""fieldkit's dialect, against a file that fieldkit wrote and, where it is installed, fieldkit."""

from dataclasses import replace
from pathlib import Path

import pytest
from fieldkit_rows import HARD_ROWS
from hypothesis import given
from hypothesis import strategies as st

from rltune.errors import StoreError
from rltune.lineage.fieldkit import FIELDKIT_COLUMNS, read_fieldkit, to_fieldkit
from rltune.lineage.importing import import_into
from rltune.lineage.read import Metric
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

EM = Metric("em", "max")
GOLDEN = Path(__file__).parents[1] / "golden" / "fieldkit_results.tsv"
HEADER = "\t".join(FIELDKIT_COLUMNS)


def ours(row):
    values = row | {"status": RowStatus(row["status"])}
    return LineageRow(**values, metric_name="em", metric_mode="max")


def table(tmp_path, *lines):
    path = tmp_path / "fieldkit.tsv"
    path.write_text("".join(f"{line}\n" for line in (HEADER, *lines)))
    return path


def cells(exp_id, status="keep", **changes):
    values = {"exp_id": exp_id, "status": status} | changes
    return "\t".join(values.get(name, "") for name in FIELDKIT_COLUMNS)


def test_what_fieldkit_wrote_is_read_its_multi_line_records_included():
    found = read_fieldkit(GOLDEN, EM)
    assert [row for _, row in found.rows] == [ours(row) for row in HARD_ROWS]
    assert [number for number, _ in found.rows] == [2, 3, 5, 9, 11, 12]  # first physical lines
    assert found.problems == []


def test_we_write_what_fieldkit_writes_byte_for_byte():
    assert to_fieldkit(map(ours, HARD_ROWS)) == GOLDEN.read_text()


def test_fieldkit_reads_what_we_write(tmp_path):
    fieldkit = pytest.importorskip("fieldkit.lineage")
    rows = [*map(ours, HARD_ROWS), LineageRow(exp_id="cr", status=RowStatus.CRASH, notes="a\rb")]
    (tmp_path / "results.tsv").write_text(to_fieldkit(rows), newline="")
    store = fieldkit.LineageStore(tmp_path, lower_is_better=False)
    for trial, row in zip(store.all_trials(), rows, strict=True):
        for name in FIELDKIT_COLUMNS:
            theirs = getattr(trial, name)
            assert getattr(theirs, "value", theirs) == getattr(row, name), name


def test_we_read_what_fieldkit_writes(tmp_path):
    fieldkit = pytest.importorskip("fieldkit.lineage")
    store = fieldkit.LineageStore(tmp_path)
    for row in HARD_ROWS:
        store.append(fieldkit.Trial(**row | {"status": fieldkit.FailureLabel(row["status"])}))
    assert store.results_path.read_bytes() == GOLDEN.read_bytes()


def test_fieldkit_reads_statuses_that_it_does_not_know_under_the_nearest(tmp_path):
    rows = [LineageRow(exp_id=s.value, status=s, notes="why") for s in RowStatus]
    path = tmp_path / "results.tsv"
    path.write_text(to_fieldkit(rows))
    fieldkit = pytest.importorskip("fieldkit.lineage")
    statuses = {t.exp_id: t.status.value for t in fieldkit.LineageStore(tmp_path).all_trials()}
    renamed = {name: theirs for name, theirs in statuses.items() if name != theirs}
    assert renamed == {"pruned": "discard", "preempted": "harness_abort", "diverged": "crash"}


def test_our_statuses_come_back_from_their_dialect(tmp_path):
    rows = [LineageRow(exp_id=s.value, status=s, notes="why") for s in RowStatus]
    rows.append(LineageRow(exp_id="bare", status=RowStatus.PRUNED))
    rows.append(LineageRow(exp_id="blank", status=RowStatus.DIVERGED, notes="at the end \n"))
    path = tmp_path / "results.tsv"
    path.write_text(to_fieldkit(rows))
    back = [row for _, row in read_fieldkit(path, Metric("", "")).rows]
    assert back == rows


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"))


@given(hypothesis=texts, notes=texts)
def test_any_text_survives_their_dialect(tmp_path_factory, hypothesis, notes):
    path = tmp_path_factory.mktemp("fk") / "results.tsv"
    rows = [
        LineageRow(exp_id="a", status=RowStatus.KEEP, hypothesis=hypothesis, notes="x" + notes),
        LineageRow(exp_id="b", status=RowStatus.KEEP),
    ]
    path.write_text(to_fieldkit(rows), encoding="utf-8", newline="")
    found = read_fieldkit(path, Metric("", ""))
    assert ([row for _, row in found.rows], found.problems) == (rows, [])


def test_the_row_that_made_the_whole_file_unreadable_costs_itself_only(tmp_path):
    """A.3 and B.4: a torn line, a second header, an unknown status, leaked markup."""
    path = table(
        tmp_path,
        cells("a"),
        HEADER,
        cells("torn", timestamp="2026")[:8] + cells("b"),
        cells("c", "bogus"),
        "d\t2026\tarch\t001\t001\tarch\tEMA </hypothesis> <parameter name=notes> x",
        cells("e", hypothesis='"never closed'),
        cells("f"),
    )
    found = read_fieldkit(path, EM)
    assert [row.exp_id for _, row in found.rows] == ["a", "f"]
    said = [str(problem).removeprefix(f"{path}:") for problem in found.problems]
    assert said[0].startswith("3: status: 'status' is not a status.")
    assert said[1:] == [
        "4: 18 columns instead of 17. The record is skipped.",
        said[2],
        "6: 7 columns instead of 17. The record is skipped.",
        "7: a quote is never closed. The record is skipped.",
    ]
    assert said[2].startswith("5: status: 'bogus' is not a status.")


def test_a_foreign_header_is_refused_and_not_read_as_empty_discards(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("foo\tbar\n1\t2\n")
    with pytest.raises(
        StoreError, match=r"x\.tsv:1: this is not a fieldkit table; its columns are"
    ):
        read_fieldkit(path, EM)


def test_what_is_no_number_is_left_out_and_said(tmp_path):
    path = table(tmp_path, cells("a", core_metric="nan"), cells("b", core_metric="inf", notes="n"))
    a, b = (row for _, row in read_fieldkit(path, EM).rows)
    assert (a.core_metric, a.notes) == (None, "[core_metric was nan]")
    assert (b.core_metric, b.notes) == (None, "n [core_metric was inf]")


def test_pool_and_held_out_metrics_of_their_rl_loop_part(tmp_path):
    """A.8: they share core_metric there, and the pool's 1.0 is shown as best."""
    path = table(
        tmp_path,
        cells("baseline", "baseline", specialist="baseline"),
        cells("rl-001", specialist="math", core_metric="0.4", parent_exp="baseline"),
        cells("heldout-001", specialist="heldout-gate", core_metric="0.9", parent_exp="rl-001"),
        cells("rl-003", specialist="math", core_metric="1.0", parent_exp="rl-001"),
    )
    store = LineageStore(tmp_path / "ours.tsv", *EM)
    import_into(store, read_fieldkit(path, EM))
    assert store.best().row.exp_id == "heldout-001"
    by_id = {row.exp_id: row for row in store.read().rows}
    assert (by_id["rl-003"].core_metric, by_id["rl-003"].pool_metric) == (None, 1.0)
    assert by_id["heldout-001"].heldout_metric == 0.9


def test_importing_resolves_aliases_and_names_what_is_lost(tmp_path):
    store = LineageStore(tmp_path / "ours.tsv", *EM)
    done = import_into(store, read_fieldkit(GOLDEN, EM))
    assert [row.parent_exp for row in store.read().rows] == ["", "000", "001", "001", "001", ""]
    assert [str(note).removeprefix(f"{GOLDEN}:") for note in done.notes] == [
        "12: 005: its parent '404' is not a row before it."
    ]
    assert store.read().rows[-1].notes == "[its parent '404' is not a row before it]"
    assert store.best().row.exp_id == "001"  # not 004, which is blocked at 99.0
    again = import_into(store, read_fieldkit(GOLDEN, EM))
    assert (len(again.rows), len(again.problems)) == (0, 6)
    assert str(again.problems[0]).endswith(
        "2: exp_id: '000' exists already. The record is skipped."
    )
    assert len(store.read().rows) == 6


def test_a_circle_of_parents_is_cut_where_it_closes(tmp_path):
    path = table(tmp_path, cells("a", parent_exp="b"), cells("b", parent_exp="a"))
    store = LineageStore(tmp_path / "ours.tsv", *EM)
    done = import_into(store, read_fieldkit(path, EM))
    assert [(row.exp_id, row.parent_exp) for row in done.rows] == [("a", ""), ("b", "a")]
    assert "its parent 'b' is not a row before it" in str(done.notes[0])


def test_an_id_that_cannot_name_a_row_is_skipped_and_nul_is_taken_out(tmp_path):
    path = table(tmp_path, cells("", notes="x"), cells("ok", notes="a\0b"))
    store = LineageStore(tmp_path / "ours.tsv", *EM)
    done = import_into(store, read_fieldkit(path, EM))
    assert [(row.exp_id, row.notes) for row in done.rows] == [("ok", "ab")]
    assert "exp_id: '' must be non-empty" in str(done.problems[0])


def test_windows_line_ends_and_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "w.tsv"
    body = f"{HEADER}\r\n{cells('a')}\r\n".encode() + cells("b", notes="X").encode() + b"\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + body.replace(b"X", b"\xff"))
    a, b = (row for _, row in read_fieldkit(path, EM).rows)
    assert a == replace(b, exp_id="a", notes="")
    assert b.notes == "\ufffd"
