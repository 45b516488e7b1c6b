import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltune.errors import StoreError
from rltune.store.jsonl import (
    append_jsonl,
    append_jsonl_many,
    read_complete,
    read_jsonl,
    read_metrics,
    truncate_after_step,
    truncate_jsonl,
)


def test_records_come_back_in_order(tmp_path):
    path = tmp_path / "m.jsonl"
    append_jsonl(path, {"step": 0})
    append_jsonl_many(path, [{"step": 1}, {"step": 2}], sync=False)
    append_jsonl_many(path, [])
    assert read_jsonl(path).rows == ({"step": 0}, {"step": 1}, {"step": 2})
    assert path.read_text() == '{"step": 0}\n{"step": 1}\n{"step": 2}\n'


def test_nothing_is_written_when_one_record_has_no_json_form(tmp_path):
    path = tmp_path / "m.jsonl"
    with pytest.raises(TypeError):
        append_jsonl_many(path, [{"step": 0}, {"step": object()}])
    assert not path.exists()


def test_a_file_of_which_no_record_may_be_missing(tmp_path):
    path = tmp_path / "m.jsonl"
    assert read_complete(path) == ()
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a": 3')  # the last one never was written
    assert read_complete(path) == ({"a": 1}, {"a": 2})
    path.write_bytes(b'{"a": 1}\n{"a": \n[2]\n{"a": 3}\n')
    with pytest.raises(StoreError) as caught:
        read_complete(path)
    assert [problem.where for problem in caught.value.problems] == [f"{path}:2", f"{path}:3"]


def test_every_bad_line_is_named_and_every_good_line_is_read(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\nnot json\n[1]\n\n{"a": NaN}\n\xff\xfe\n{"a": 2}\n{"a": 3')
    read = read_jsonl(path)
    assert read.rows == ({"a": 1}, {"a": 2})
    assert [problem.where for problem in read.problems] == [
        f"{path}:{n}" for n in (2, 3, 4, 5, 6, 8)
    ]
    assert str(read.problems[1]) == f"{path}:3: not a JSON object: b'[1]\\n'. The line is skipped."
    assert "torn last line" in str(read.problems[-1])
    assert all("torn" not in str(problem) for problem in read.problems[:-1])


@given(st.binary())
def test_reading_never_fails(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bytes") / "m.jsonl"
    path.write_bytes(data)
    read = read_jsonl(path)
    n_lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert len(read.rows) + len(read.problems) == n_lines


def test_a_tail_cut_at_any_byte_never_merges_with_the_next_record(tmp_path):
    whole = b'{"step": 0}\n{"step": 1, "x": 0.25}\n'
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole) + 1):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(whole[:cut])
        append_jsonl(path, {"step": 2}, sync=False)
        read = read_jsonl(path)
        survives = cut >= len(whole) - 1  # only the newline is missing, or nothing
        expected = [0, 1, 2] if survives else [0, 2]
        assert [row["step"] for row in read.rows] == expected
        assert read.problems == ()
        torn = path.with_name(path.name + ".torn")
        assert torn.exists() == (first < cut and not survives)
        if torn.exists():
            note, kept = torn.read_bytes().split(b"\n")[:2]
            assert kept == whole[first:cut]
            assert note.startswith(b"# ")


def test_metrics_keep_what_json_numbers_cannot_hold(tmp_path):
    path = tmp_path / "m.jsonl"
    append_jsonl(
        path, {"step": 1, "loss": math.nan, "up": math.inf, "down": -math.inf, "hash": "ff"}
    )
    assert json.loads(path.read_text())["loss"] == "NaN"
    (row,) = read_metrics(path).rows
    assert math.isnan(row.pop("loss"))
    assert row == {"step": 1, "up": math.inf, "down": -math.inf, "hash": "ff"}


def test_truncation_after_a_step_keeps_lines_byte_for_byte(tmp_path):
    path = tmp_path / "m.jsonl"
    kept = b'{"step":0,  "odd spacing": 1}\n{"note": "no step"}\n{"step": 2}\n'
    path.write_bytes(kept + b'garbage\n{"step": 3}\n{"step": 4')
    assert truncate_after_step(path, 2) == (3, 1, 2)
    assert path.read_bytes() == kept
    torn = path.with_name("m.jsonl.torn").read_text()
    assert "garbage" in torn
    assert '{"step": 4' in torn
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["m.jsonl", "m.jsonl.torn"]


def test_truncation_that_keeps_all_does_not_touch_the_file(tmp_path):
    path = tmp_path / "m.jsonl"
    append_jsonl(path, {"step": 0})
    before = path.stat()
    assert truncate_after_step(path, 0) == (1, 0, 0)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert truncate_jsonl(tmp_path / "none.jsonl", lambda row: True) == (0, 0, 0)
    assert not (tmp_path / "none.jsonl").exists()


def test_truncation_completes_a_kept_last_line_without_newline(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 9}\n{"step": 1}')
    assert truncate_after_step(path, 1) == (1, 1, 0)
    assert path.read_bytes() == b'{"step": 1}\n'
