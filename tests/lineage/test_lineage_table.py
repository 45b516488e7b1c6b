import json
from dataclasses import replace

import pytest

from rltune.errors import StoreError
from rltune.lineage.read import meta_path
from rltune.lineage.row import HEADER, LineageRow, encode_row
from rltune.lineage.table import LineageStore
from rltune.store.lock import file_lock
from rltune.types import RowStatus

METRIC = {"metric_name": "heldout/success_rate", "metric_mode": "max"}


def row(exp_id, **changes):
    return LineageRow(**{"exp_id": exp_id, "status": RowStatus.DISCARD} | METRIC | changes)


@pytest.fixture
def store(tmp_path):
    return LineageStore(tmp_path / "results.tsv", *METRIC.values())


def test_rows_come_back_in_order_and_the_file_is_plain(store):
    rows = [
        row("a", status=RowStatus.BASELINE),
        row("b", parent_exp="a", baseline_exp="a", notes="x\ty\nz"),
    ]
    assert [store.append(r) for r in rows] == rows
    assert store.read() == (tuple(rows), ())
    assert (
        store.path.read_bytes()
        == "".join(f"{line}\n" for line in (HEADER, *map(encode_row, rows))).encode()
    )
    assert sorted(p.name for p in store.path.parent.iterdir()) == [
        "results.meta.json",
        "results.tsv",
        "results.tsv.lock",
    ]


def test_a_row_whose_line_is_damaged_may_be_written_again_and_a_whole_one_may_not(store):
    for name in ("a", "b"):
        store.append(row(name, core_metric=0.5))
    store.path.write_bytes(store.path.read_bytes().replace(b"\t0.5\t", b"\tx.5\t", 1))
    store.append(row("a", core_metric=0.75))
    rows, problems = store.read()
    assert [(one.exp_id, one.core_metric) for one in rows] == [("b", 0.5), ("a", 0.75)]
    assert len(problems) == 1
    for name in ("a", "b"):
        with pytest.raises(StoreError, match="a row with this id exists"):
            store.append(row(name))
    with pytest.raises(StoreError, match="a row with this id exists"):
        store.append_many([row("c"), row("c")])


def test_looking_at_a_table_that_does_not_exist_makes_no_file(store):
    assert store.read() == ((), ())
    assert list(store.path.parent.iterdir()) == []


def test_the_direction_is_in_the_sidecar_and_cannot_be_turned(store):
    store.append(row("a"))
    assert json.loads(meta_path(store.path).read_text()) == {"format": "rltune-lineage-1"} | METRIC
    assert LineageStore.open(store.path) == store
    for name, mode in [("heldout/success_rate", "min"), ("heldout/reward_mean", "max")]:
        with pytest.raises(
            StoreError, match=r"results\.meta\.json: this table was created with \{"
        ):
            LineageStore(store.path, name, mode)
    with pytest.raises(StoreError, match="'up' is not a direction"):
        LineageStore(store.path, "m", "up")


def test_two_writers_that_begin_with_different_directions_cannot_both_write(store):
    other = LineageStore(store.path, store.metric_name, "min")  # no sidecar yet: both may open
    store.append(row("a"))
    with pytest.raises(StoreError, match="was created with"):
        other.append(row("b", metric_mode="min"))
    assert len(store.read().rows) == 1


def test_opening_needs_a_sidecar(store):
    with pytest.raises(StoreError, match=r"results\.meta\.json: the file is missing"):
        LineageStore.open(store.path)
    meta_path(store.path).write_text("[]")
    with pytest.raises(StoreError, match="is not a lineage sidecar"):
        LineageStore.open(store.path)
    with pytest.raises(StoreError, match="was created with"):
        LineageStore(store.path, *METRIC.values())


REFUSED = [
    ({"core_metric": float("nan")}, "core_metric: nan is not a finite number"),
    ({"status": "keep"}, "status: 'keep' is not a status"),
    ({"exp_id": "a"}, "exp_id: a row with this id exists; a new attempt needs a new id"),
    ({"parent_exp": "zz"}, "parent_exp: 'zz' is not in this table; leave it empty for a root"),
    ({"parent_exp": "new"}, "parent_exp: 'new' is not in this table; leave it empty for a root"),
    ({"baseline_exp": "zz"}, "baseline_exp: 'zz' is not in this table"),
    ({"metric_mode": "min"}, "metric_mode: 'min'; this table holds 'max'"),
    ({"metric_name": ""}, "metric_name: ''; this table holds 'heldout/success_rate'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_row_that_breaks_a_rule_is_refused_and_nothing_is_written(store, changes, message):
    store.append(row("a"))
    before = store.path.read_bytes()
    bad = row(**{"exp_id": "new"} | changes)
    with pytest.raises(StoreError) as refusal:
        store.append(bad)
    assert str(refusal.value).startswith(f"{store.path}: {bad.exp_id}: {message}")
    assert store.path.read_bytes() == before


def test_all_that_is_wrong_with_a_row_is_said_at_once(store):
    with pytest.raises(StoreError) as refusal:
        store.append(row("a", parent_exp="x", baseline_exp="y", metric_mode="min"))
    assert len(refusal.value.problems) == 3


def test_the_alias_of_an_existing_id_is_resolved(store):
    store.append(row("075"))
    written = store.append(row("076", parent_exp="exp_075", baseline_exp="exp_075"))
    assert (written.parent_exp, written.baseline_exp) == ("075", "075")
    assert store.read().rows[1] == written
    store.append(row("exp_075"))
    assert (
        store.append(row("077", parent_exp="exp_075")).parent_exp == "exp_075"
    )  # it exists itself


def test_a_circle_made_by_hand_is_named_when_a_row_would_hang_on_it(store):
    store.append(row("seed"))
    with store.path.open("a") as file:
        file.write(
            encode_row(row("a", parent_exp="b"))
            + "\n"
            + encode_row(row("b", parent_exp="a"))
            + "\n"
        )
    with pytest.raises(StoreError, match="its ancestors form a circle: a -> b -> a"):
        store.append(row("c", parent_exp="a"))
    store.append(row("c", parent_exp="seed"))


def test_a_foreign_file_is_not_appended_to(store):
    fieldkit = "\t".join(HEADER.split("\t")[:17]) + "\n"
    for content, message in [
        (fieldkit, "column 18 is missing, expected 'sweep'"),
        ("foo\tbar\n", "column 1 is 'foo', expected 'exp_id'"),
        (HEADER + "\r\n", "column 32 is 'wandb_id\\\\r', expected 'wandb_id'"),
        ("\ufeff" + HEADER + "\n", "column 1 is '\\\\ufeffexp_id', expected 'exp_id'"),
    ]:
        store.path.write_text(content, encoding="utf-8", newline="")
        with pytest.raises(
            StoreError, match=f"results.tsv:1: this is not an rltune lineage table: {message}"
        ):
            store.append(row("a"))
        assert store.path.read_bytes() == content.encode()
        rows, problems = store.read()
        assert rows == ()
        assert problems[0].where == f"{store.path}:1"


def test_reading_skips_and_names_what_is_no_row(store):
    store.append(row("a"))
    good = encode_row(row("b"))
    with store.path.open("ab") as file:
        file.write(f"{HEADER}\nbogus\n\n{encode_row(row('a'))}\n{good}\n".encode())
        file.write(b"\xff\xfe\n" + good[:20].encode())
    rows, problems = store.read()
    assert [r.exp_id for r in rows] == ["a", "b"]
    said = [str(problem).removeprefix(f"{store.path}:") for problem in problems]
    assert said[0] == "3: a second header; two writers created this table. The row is skipped."
    assert said[1:4] == [
        "4: 1 columns instead of 32. The row is skipped.",
        "5: 1 columns instead of 32. The row is skipped.",
        "6: exp_id: 'a' is a duplicate. The row is skipped.",
    ]
    assert said[4].startswith("8: 'utf-8' codec can't decode")
    assert said[5] == "9: a torn last line of 20 bytes; its writer was killed. The row is skipped."


def test_a_table_cut_at_any_byte_goes_on_and_loses_nothing(tmp_path):
    rows = [row("a"), row("b", notes="é\t\n", core_metric=0.25)]
    whole = "".join(f"{line}\n" for line in (HEADER, *map(encode_row, rows))).encode()
    for cut in range(0, len(whole) + 1, 3):
        store = LineageStore(tmp_path / f"cut{cut}.tsv", *METRIC.values())
        store.path.write_bytes(whole[:cut])
        store.append(row("c"))
        n_whole = max(0, whole[:cut].count(b"\n") - 1)
        assert store.read() == ((*rows[:n_whole], row("c")), ())
        torn = store.path.with_name(store.path.name + ".torn")
        tail = whole[:cut].rpartition(b"\n")[2]
        assert torn.exists() == bool(tail)
        if tail:
            note, kept = torn.read_bytes().rstrip(b"\n").split(b"\n")
            assert kept == tail
            assert f"{len(tail)} bytes of {store.path.name}".encode() in note


def test_record_decides_on_the_rows_of_the_moment(store):
    store.append(row("a"))
    seen = []
    written = store.record(lambda rows: seen.append(rows) or row("b", parent_exp=rows[0].exp_id))
    assert seen == [(row("a"),)]
    assert written == store.read().rows[1]
    assert written.parent_exp == "a"


def test_nobody_writes_between_the_decision_and_the_record(store):
    impatient = replace(store, lock_timeout_s=0.02)

    def build(rows):
        with pytest.raises(StoreError, match="has held this lock"):
            impatient.append(row("intruder"))
        return row("a")

    store.record(build)
    assert [r.exp_id for r in store.read().rows] == ["a"]


def test_a_builder_that_fails_writes_nothing_and_frees_the_lock(store):
    def fail(rows):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        store.record(fail)
    store.append(row("a"))
    assert len(store.read().rows) == 1


def test_a_reader_that_meets_half_a_record_looks_again_after_the_writer(store):
    store.append(row("a"))
    store.path.write_bytes(store.path.read_bytes()[:-5])
    lock = store.path.with_name("results.tsv.lock")
    with file_lock(lock), pytest.raises(StoreError, match="has held this lock"):
        replace(store, lock_timeout_s=0.02).read()
    assert "torn last line" in str(store.read().problems[0])
