"""What every append-only store promises, over each one that rltune has."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.store.jsonl import append_jsonl, read_jsonl
from rltune.store.ledger import Ledger, LedgerEvent
from rltune.types import RowStatus

AWKWARD = 'tab\t newline\n return\r quote" backslash\\ é 中 \u2028 \x0b \x85 |'


@dataclass
class Jsonl:
    """A metrics, held-out or episodes file."""

    path: Path

    def append(self, name):
        append_jsonl(self.path, {"name": name, "text": AWKWARD})

    def read(self):
        read = read_jsonl(self.path)
        assert all(row["text"] == AWKWARD for row in read.rows)
        return [row["name"] for row in read.rows], read.problems


@dataclass
class LedgerFile:
    path: Path

    def append(self, name):
        Ledger(self.path).log(name, LedgerEvent.FAILED, attempt=1, launch="L", reason=AWKWARD)

    def read(self):
        state = Ledger(self.path).read()
        assert all(trial.last.reason == AWKWARD for trial in state.trials.values())
        return list(state.trials), state.problems


@dataclass
class Lineage:
    path: Path

    @property
    def store(self):
        return LineageStore(self.path, "m", "max")

    def append(self, name):
        row = LineageRow(
            exp_id=name, status=RowStatus.KEEP, notes=AWKWARD, metric_name="m", metric_mode="max"
        )
        self.store.append(row)

    def read(self):
        read = self.store.read()
        assert all(row.notes == AWKWARD for row in read.rows)
        return [row.exp_id for row in read.rows], read.problems


@pytest.fixture(params=[Jsonl, LedgerFile, Lineage])
def store(request, tmp_path):
    return request.param(tmp_path / "records.tsv")


def test_a_missing_file_is_empty_and_reading_makes_none(store):
    assert store.read() == ([], ())
    assert list(store.path.parent.iterdir()) == []


def test_records_come_back_in_order_whatever_text_they_hold(store):
    for name in ("b", "a", "c"):
        store.append(name)
    assert store.read() == (["b", "a", "c"], ())


def test_one_record_is_one_physical_line(store):
    store.append("a")
    before = store.path.read_bytes()
    store.append("b")
    added = store.path.read_bytes().removeprefix(before)
    assert added.endswith(b"\n")
    assert added.count(b"\n") == 1
    assert b"\r" not in added


def test_a_torn_tail_is_reported_then_set_aside_and_later_records_are_whole(store):
    store.append("a")
    store.append("b")
    whole = store.path.read_bytes()
    torn = whole[:-7]
    store.path.write_bytes(torn)
    names, problems = store.read()
    assert names == ["a"]
    assert len(problems) == 1
    assert "torn last line" in str(problems[0])
    store.append("c")
    assert store.read() == (["a", "c"], ())
    lost = store.path.with_name(store.path.name + ".torn").read_bytes()
    assert torn.rpartition(b"\n")[2] in lost


def test_garbage_is_named_by_line_and_the_rest_is_read(store):
    store.append("a")
    n_lines = store.path.read_bytes().count(b"\n")
    with store.path.open("ab") as file:
        file.write(b"\x00\xff garbage\n")
    store.append("b")
    names, problems = store.read()
    assert names == ["a", "b"]
    assert [problem.where for problem in problems] == [f"{store.path}:{n_lines + 1}"]


def test_appending_never_changes_what_is_there(store):
    store.append("a")
    before, inode = store.path.read_bytes(), store.path.stat().st_ino
    store.append("b")
    assert store.path.read_bytes().startswith(before)
    assert store.path.stat().st_ino == inode


def test_a_record_is_one_write_and_on_the_disk_when_append_returns(store, monkeypatch):
    store.append("a")
    calls = []
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda fd, data: calls.append(data) or write(fd, data))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync") or fsync(fd))
    before = store.path.read_bytes()
    store.append("b")
    assert calls == [store.path.read_bytes().removeprefix(before), "fsync"]
