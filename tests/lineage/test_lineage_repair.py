import json

import pytest

from rltune.errors import StoreError
from rltune.lineage.fieldkit import FIELDKIT_COLUMNS
from rltune.lineage.read import meta_path
from rltune.lineage.repair import find_damage, repair
from rltune.lineage.row import HEADER, LineageRow, encode_row
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

METRIC = {"metric_name": "m", "metric_mode": "max"}


def row(exp_id, **changes):
    return LineageRow(**{"exp_id": exp_id, "status": RowStatus.KEEP} | METRIC | changes)


A, B = (encode_row(row(name)) for name in "ab")


@pytest.fixture
def path(tmp_path):
    LineageStore(tmp_path / "results.tsv", "m", "max").append(row("seed"))
    return tmp_path / "results.tsv"


def ids(path):
    return [one.exp_id for one in LineageStore.open(path).read().rows]


def side(path):
    return path.with_name("results.tsv.torn")


def test_a_whole_table_is_left_as_it_is(path):
    before, inode = path.read_bytes(), path.stat().st_ino
    assert find_damage(path).is_clean
    assert repair(path).is_clean
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode)
    assert not side(path).exists()


def test_what_is_no_row_moves_to_the_side_file_and_nothing_is_lost(path):
    """A.3: the duplicate header of the race, a torn row, an unknown status, a repeated id."""
    other = encode_row(row("x", metric_mode="min"))
    bad = [HEADER, "torn\t2026", A.replace("keep", "bogus"), "", "raw \x00 \\q", other]
    lines = [*bad[:3], A, *bad[3:], A.replace("a\t", "seed\t", 1), B]
    before = path.read_bytes()
    path.write_bytes(before + "".join(f"{line}\n" for line in lines).encode() + b"half")
    content = path.read_bytes()

    damage = find_damage(path)
    assert path.read_bytes() == content  # a dry run
    assert [one.number for one in damage.bad] == [3, 4, 5, 7, 8, 9, 10, 12]
    assert (damage.rows, damage.notes) == (3, ())

    assert repair(path) == damage
    assert path.read_text() == before.decode() + f"{A}\n{B}\n"
    assert ids(path) == ["seed", "a", "b"]
    assert find_damage(path).is_clean
    kept = side(path).read_bytes()
    for one in damage.bad:
        assert one.content in kept
        assert f"line {one.number}: {one.why}".encode() in kept
    assert "it holds 'm' (min), this table 'm' (max); the two are never compared" in kept.decode()


def test_a_missing_header_is_written(path):
    path.write_text(f"{A}\n{B}\n")
    assert find_damage(path).notes == ("the header is missing; it is added",)
    repair(path)
    assert path.read_text() == f"{HEADER}\n{A}\n{B}\n"


def test_a_damaged_header_is_written_anew_and_kept_aside(path):
    path.write_text(f"{HEADER[:40]}\n{A}\nbad\n{B}\n")
    damage = find_damage(path)
    assert damage.notes == ("the header is damaged; it is rewritten",)
    assert [one.number for one in damage.bad] == [1, 3]
    repair(path)
    assert path.read_text() == f"{HEADER}\n{A}\n{B}\n"
    assert HEADER[:40] in side(path).read_text()


def test_what_an_editor_did_is_undone(path):
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\n{A}\r\n".encode())
    assert len(find_damage(path).notes) == 2
    repair(path)
    assert path.read_text() == f"{HEADER}\n{A}\n"


def test_a_lost_sidecar_is_written_when_the_rows_agree(path):
    meta_path(path).unlink()
    assert find_damage(path).notes == ("results.meta.json is missing; it is added: m max",)
    assert not meta_path(path).exists()
    repair(path)
    data = json.loads(meta_path(path).read_text())
    assert (data["metric_name"], data["metric_mode"]) == ("m", "max")
    assert find_damage(path).is_clean


def test_rows_of_two_metrics_without_a_sidecar_are_not_guessed(path):
    with path.open("a") as file:
        file.write(encode_row(row("x", metric_mode="min")) + "\n")
    meta_path(path).unlink()
    for call in (find_damage, repair, LineageStore.open):
        with pytest.raises(StoreError, match=r"the rows name 'm' \(max\) and 'm' \(min\)"):
            call(path)


def test_an_empty_table_gets_its_header(path):
    path.write_bytes(b"")
    assert find_damage(path).notes == ("the header is missing; it is added",)
    repair(path)
    assert (path.read_text(), ids(path)) == (f"{HEADER}\n", [])
    assert find_damage(path).is_clean


def test_what_is_no_lineage_table_is_not_touched(path):
    for content in ("foo\tbar\n1\t2\n", "\t".join(FIELDKIT_COLUMNS) + "\n", "x"):
        path.write_text(content)
        with pytest.raises(StoreError, match="this is not an rltune lineage table"):
            repair(path)
        assert path.read_text() == content
    with pytest.raises(StoreError, match="there is no such lineage table"):
        find_damage(path.with_name("none.tsv"))
