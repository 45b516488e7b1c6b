"""Two ways to read one table: whole, and only what chooses a row. They must agree."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltune.errors import StoreError
from rltune.lineage.query import best, chain, children, find_id, recent
from rltune.lineage.read import Metric, lines_by_id, meta_path
from rltune.lineage.row import HEADER, LineageRow, encode_row
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

METRIC = {"metric_name": "m", "metric_mode": "max"}


def row(exp_id, metric=None, status=RowStatus.KEEP, **changes):
    values = {"exp_id": exp_id, "status": status, "core_metric": metric} | METRIC | changes
    return LineageRow(**values)


def written(path, lines, mode="max"):
    path.write_text("".join(f"{line}\n" for line in (HEADER, *lines)), newline="")
    return LineageStore(path, "m", mode)


lines = st.one_of(
    st.builds(
        lambda *cells: encode_row(row(*cells[:3], parent_exp=cells[3], metric_mode=cells[4])),
        st.sampled_from("abcde"),
        st.none() | st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from([RowStatus.KEEP, RowStatus.BASELINE, RowStatus.DISCARD, RowStatus.CRASH]),
        st.sampled_from(["", "a", "b", "exp_c", "d", "zz"]),
        st.sampled_from(["max", "max", "max", "min"]),
    ),
    st.sampled_from(["", HEADER, "torn\t1"]),
    st.builds(
        lambda name, cell: encode_row(row(name, 2.0, train_s=7.0)).replace("7.0", cell),
        st.sampled_from("abcde"),
        st.sampled_from(["x", "nan", "1e999"]),  # a damaged column that choosing does not look at
    ),
    st.builds(
        lambda name, cell: encode_row(row(name, 0.25)).replace("0.25", cell),
        st.sampled_from("abcde"),
        st.sampled_from(["x", "nan", "inf"]),
    ),
)


@given(st.lists(lines, max_size=8), st.sampled_from(["max", "min"]))
def test_the_fast_answers_are_those_of_the_whole_table(tmp_path_factory, table, mode):
    path = tmp_path_factory.mktemp("t") / "results.tsv"
    store = written(path, table, mode)
    rows = store.read().rows
    assert all(one.metric_mode == mode for one in rows)
    assert store.best() == best(rows, mode)
    for one in rows:
        assert store.chain(one.exp_id) == chain(rows, one.exp_id)


def test_mixed_directions_in_one_file_never_compare(tmp_path):
    """A.6: the wrong direction turns the table upside down without a word."""
    store = written(
        tmp_path / "results.tsv",
        [
            encode_row(row("good", 0.5)),
            encode_row(row("loss", 99.0, metric_mode="min")),
            encode_row(row("other", 99.0, metric_name="reward")),
        ],
    )
    read = store.read()
    assert [one.exp_id for one in read.rows] == ["good"]
    assert [str(problem).partition(": ")[2] for problem in read.problems] == [
        "it holds 'm' (min), this table 'm' (max); the two are never compared. The row is skipped.",
        "it holds 'reward' (max), this table 'm' (max); the two are never compared. "
        "The row is skipped.",
    ]
    assert store.best().row.exp_id == "good"


def test_a_table_without_its_sidecar_says_itself_what_it_measures(tmp_path):
    store = written(tmp_path / "results.tsv", [encode_row(row("a", 0.5))])
    assert LineageStore.open(store.path).metric == Metric("m", "max")
    store = written(store.path, [])
    with pytest.raises(StoreError, match=r"results\.meta\.json: the sidecar is missing and the"):
        LineageStore.open(store.path)
    assert not meta_path(store.path).exists()


def test_a_repeated_id_is_left_to_the_whole_reading(tmp_path):
    store = written(tmp_path / "results.tsv", [encode_row(row("a", v)) for v in (0.1, 0.9)])
    assert lines_by_id(store.path.read_bytes()) is None
    assert store.best().row.core_metric == 0.1


def test_a_row_that_is_damaged_elsewhere_does_not_win(tmp_path):
    damaged = encode_row(row("x", 0.9, train_s=7.0)).replace("7.0", "7.O")
    store = written(tmp_path / "results.tsv", [encode_row(row("a", 0.1)), damaged])
    assert store.best().row.exp_id == "a"


def test_many_rows_are_appended_all_or_none(tmp_path):
    store = LineageStore(tmp_path / "results.tsv", "m", "max")
    made = store.append_many([row("a"), row("b", parent_exp="exp_a")])
    assert [one.parent_exp for one in made] == ["", "a"]
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match="a row with this id exists"):
        store.append_many([row("c"), row("d"), row("c")])
    assert store.path.read_bytes() == before


@pytest.mark.parametrize("end", [OSError, KeyboardInterrupt])
def test_a_full_disk_or_a_ctrl_c_half_way_takes_all_of_them_back(tmp_path, monkeypatch, end):
    store = LineageStore(tmp_path / "results.tsv", "m", "max")
    store.append(row("a"))
    before, write, calls = store.path.read_bytes(), os.write, []

    def short(fd, data):
        calls.append(data)
        written = write(fd, data if len(calls) < 2 else data[:9])
        if written == 9 and end is KeyboardInterrupt:
            raise end
        return written

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(end, match="only 9 of" if end is OSError else None):
        store.append_many([row("b"), row("c"), row("d")])
    assert store.path.read_bytes() == before


def test_a_table_with_a_damaged_header_has_no_best_and_does_not_say_there_is_none(tmp_path):
    store = written(tmp_path / "results.tsv", [encode_row(row("a", 0.5))])
    store.path.write_bytes(b"x" + store.path.read_bytes())
    for ask in (store.best, lambda: store.chain("a")):
        with pytest.raises(
            StoreError, match="`rltune lineage repair` mends a damaged header over whole rows"
        ):
            ask()


def test_without_its_sidecar_a_table_is_not_taken_over_by_another_metric(tmp_path):
    store = written(tmp_path / "results.tsv", [encode_row(row("a", 0.5))])
    other = LineageStore(store.path, "loss", "min")
    with pytest.raises(StoreError, match=r"its rows hold 'm' \(max\), not 'loss' \(min\)"):
        other.append(row("b", 0.1, metric_name="loss", metric_mode="min"))
    assert not meta_path(store.path).exists()
    store.append(row("b", 0.6))
    assert [one.exp_id for one in store.read().rows] == ["a", "b"]


def test_recent_of_nothing_is_nothing():
    """A.4 and A.5: a slice of [-0:] is the whole table."""
    rows = [row("a"), row("b"), row("c")]
    assert [one.exp_id for one in recent(rows, 2)] == ["c", "b"]
    assert recent(rows, 0) == recent([], 3) == ()


def test_children_whatever_became_of_them():
    rows = [row("a"), row("b", parent_exp="exp_a"), row("c", status=RowStatus.CRASH,
            parent_exp="a"), row("d", parent_exp="b")]  # fmt: skip
    assert [one.exp_id for one in children(rows, "exp_a")] == ["b", "c"]
    with pytest.raises(StoreError, match="'zz' is not in the table"):
        children(rows, "zz")


def test_an_id_may_be_given_by_its_beginning():
    ids = ["kl=0-s0-aa", "kl=0-s1-bb", "kl=1-s0-cc"]
    assert find_id(ids, "kl=1") == "kl=1-s0-cc"
    with pytest.raises(StoreError, match=r"'kl=0' matches 2 ids: kl=0-s0-aa, kl=0-s1-bb\. Give a"):
        find_id(ids, "kl=0")
    with pytest.raises(StoreError, match="'' is not in the table"):
        find_id(ids, "")
