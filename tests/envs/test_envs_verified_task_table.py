"""Rows of JSON, CSV and Parquet files are the same rows."""

import json

import pytest
from cases import each

from rltune_envs.errors import TaskError
from rltune_envs.verified_task.table import read_table
from rltune_envs.verified_task.template import columns_of, fill, shows

ROWS = [{"question": "1, 1?", "answer": "2"}, {"question": "a\nb", "answer": "−3"}]


def write_jsonl(path):
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")


def write_json(path):
    path.write_text(json.dumps(ROWS), encoding="utf-8")


def write_csv(path):
    path.write_text('question,answer\n"1, 1?",2\n"a\nb",−3\n', encoding="utf-8-sig")


def write_parquet(path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize("write", [write_jsonl, write_json, write_csv, write_parquet])
def test_every_format_gives_the_same_rows(tmp_path, write):
    path = tmp_path / f"p.{write.__name__.removeprefix('write_')}"
    write(path)
    assert read_table(str(path)) == list(enumerate(ROWS, start=1))


def test_what_json_cannot_keep_becomes_text_or_null(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from datetime import date

    from pyarrow import parquet

    rows = [{"day": date(2026, 1, 2), "x": float("nan"), "of": [{"a": b"1"}]}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    (row,) = read_table(str(tmp_path / "p.parquet"))
    assert row == (1, {"day": "2026-01-02", "x": None, "of": [{"a": "b'1'"}]})


def test_a_file_that_is_no_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "p.parquet"
    path.write_text("question,answer\n")
    with pytest.raises(TaskError, match=r"p\.parquet: cannot be read as Parquet: "):
        read_table(str(path))


ROW = {"q": " 1 + 1? ", "the q": "2 + 2?", "n": 3, "c": ["x", "y "]}


@each(
    ("template", "text"),
    [
        ("{q}", "1 + 1?"),
        ("{q} in \\boxed{}.", "1 + 1? in \\boxed{}."),
        ("{{q}} is {q}", "{q} is 1 + 1?"),
        ("{ q } {q!r} {n}", "{ q } {q!r} 3"),
        ("{c}", "(A) x\n(B) y"),
        ("{the q} in {no q}", "2 + 2? in {no q}"),
        ("{{the q}} is {the q}", "{the q} is 2 + 2?"),
    ],
)
def test_only_names_of_columns_in_braces_are_replaced(template, text):
    assert fill(template, ROW) == text


def test_the_columns_of_a_template():
    assert columns_of("{a} {b} {a} {{c}} {} { d }") == ("a", "b")
    assert shows("{a} {the b}", "the b")
    assert not shows("{a} {{the b}}", "the b")
