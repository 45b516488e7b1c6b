"""Tables that were begun before a column came: here `ig_mean` and `wandb_id` are such columns."""

from dataclasses import replace

import pytest

from rltune.errors import StoreError
from rltune.lineage.read import read_body, with_all_columns
from rltune.lineage.repair import find_damage, repair
from rltune.lineage.row import COLUMNS, HEADER, LineageRow, columns_of, decode_row, encode_row
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

LATER = ("ig_mean", "wandb_id")
OLD_COLUMNS = tuple(name for name in COLUMNS if name not in LATER)
OLD_HEADER = "\t".join(OLD_COLUMNS)


def row(exp_id, metric=0.5, **changes):
    values = {"exp_id": exp_id, "status": RowStatus.KEEP, "core_metric": metric}
    return LineageRow(**values, metric_name="m", metric_mode="max", **changes)


def old(one):
    """Return a row as a table without the later columns has it."""
    cells = dict(zip(COLUMNS, encode_row(one).split("\t"), strict=True))
    return "\t".join(cells[name] for name in OLD_COLUMNS)


ROWS = [row("a", seed=3), row("b", 0.75, parent_exp="a", notes="x\ty", train_s=1 / 3)]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the store of a table with two rows of earlier, and a line that is none."""
    monkeypatch.setattr("rltune.lineage.row._LATER", frozenset(LATER))
    store = LineageStore(tmp_path / "results.tsv", "m", "max")
    lines = [OLD_HEADER, old(ROWS[0]), "not a row", old(ROWS[1])]
    store.path.write_text("".join(f"{line}\n" for line in lines), newline="")
    return store


def test_columns_that_came_later_read_as_unknown(store):
    rows, problems = store.read()
    assert list(rows) == ROWS
    assert [problem.where for problem in problems] == [f"{store.path}:3"]
    assert read_body(store.path.read_bytes(), store.path, None) == (rows, problems)
    assert store.best().row == ROWS[1]
    assert store.chain("b").rows == tuple(ROWS)
    store.path.with_suffix(".meta.json").unlink(missing_ok=True)
    assert LineageStore.open(store.path).metric_name == "m"


def test_looking_leaves_the_table_as_it_is_and_writing_gives_every_row_every_column(store):
    before = store.path.read_bytes()
    store.read()
    assert store.path.read_bytes() == before
    third = store.append(row("c", wandb_id="w", ig_mean=0.25))
    lines = [HEADER, encode_row(ROWS[0]), "not a row", *map(encode_row, [ROWS[1], third])]
    assert store.path.read_text().splitlines() == lines
    assert store.read().rows == (*ROWS, third)
    store.append(row("d"))
    assert len(store.path.read_text().splitlines()) == 6


def test_a_writer_that_dies_on_the_way_leaves_the_table_of_before(store, monkeypatch):
    before = store.path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rltune.store.files.os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        store.append(row("c"))
    assert store.path.read_bytes() == before
    assert [p.name for p in store.path.parent.iterdir() if p.suffix == ".tmp"] == []


def test_a_record_that_was_torn_then_goes_to_the_side_file(store):
    with store.path.open("a", newline="") as file:
        file.write(old(row("torn"))[:-7])
    store.append(row("c"))
    assert [one.exp_id for one in store.read().rows] == ["a", "b", "c"]
    assert b"torn" in store.path.with_name("results.tsv.torn").read_bytes()


def test_a_repair_adds_the_columns_too(store):
    assert [bad.number for bad in find_damage(store.path).bad] == [3]
    repair(store.path)
    assert store.path.read_text().splitlines() == [HEADER, *map(encode_row, ROWS)]


def test_which_headers_are_those_of_a_table(monkeypatch):
    assert columns_of(HEADER) == COLUMNS
    assert columns_of(OLD_HEADER) is None  # every column is as old as the format
    monkeypatch.setattr("rltune.lineage.row._LATER", frozenset(LATER))
    assert columns_of(OLD_HEADER) == OLD_COLUMNS
    assert columns_of("\t".join(("ig_mean", *OLD_COLUMNS))) is None  # not in their order
    assert columns_of("\t".join(name for name in COLUMNS if name != "notes")) is None
    assert columns_of("\t".join((*COLUMNS, "notes"))) is None
    assert decode_row(old(ROWS[1]), OLD_COLUMNS) == replace(ROWS[1], ig_mean=None, wandb_id="")


def test_what_is_no_table_stays_as_it_is():
    for body in (b"", b"a\tb\n1\t2\n", f"{HEADER}\n".encode(), OLD_HEADER.encode()):
        assert with_all_columns(body) == body


def test_a_table_of_a_later_rltune_is_refused_by_the_name_of_its_column(tmp_path):
    store = LineageStore(tmp_path / "results.tsv", "m", "max")
    store.path.write_text(f"{HEADER}\tnews\n{encode_row(ROWS[0])}\t1\n")
    message = r":1: has the column 'news', unknown to this rltune\. Use the rltune that wrote it,"
    assert [str(one) for one in store.read().problems] == [
        f"{store.path}:1: has the column 'news', unknown to this rltune. Use the rltune that wrote "
        "it, or a later one."
    ]
    with pytest.raises(StoreError, match=message):
        store.append(row("c"))
