import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltune.errors import StoreError
from rltune.store.files import (
    dumps,
    link_atomic,
    loads,
    read_json,
    replacing,
    torn_tail,
    write_json_atomic,
    write_line,
    write_text_atomic,
)
from rltune.types import TrialStatus


@dataclass(frozen=True)
class Point:
    x: float
    where: Path


def test_values_of_every_kind_have_a_strict_json_form():
    value = {
        "nan": math.nan,
        "inf": [math.inf, -math.inf],
        "np": np.float32(0.5),
        "np_nan": np.float64("nan"),
        "array": np.array([[1, 2], [3, 4]]),
        "status": TrialStatus.DONE,
        "point": Point(1.5, Path("a/b")),
        "none": None,
        "flag": True,
    }
    assert loads(dumps(value)) == {
        "nan": "NaN",
        "inf": ["Infinity", "-Infinity"],
        "np": 0.5,
        "np_nan": "NaN",
        "array": [[1, 2], [3, 4]],
        "status": "done",
        "point": {"x": 1.5, "where": "a/b"},
        "none": None,
        "flag": True,
    }


@pytest.mark.parametrize("value", [{1, 2}, object(), {1: 2}, {"deep": [b"bytes"]}])
def test_a_value_without_json_form_is_a_type_error(value):
    with pytest.raises(TypeError, match=r"has no JSON form|JSON keys are strings"):
        dumps(value)


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[" * 100_000, "", "{"])
def test_what_is_not_strict_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        loads(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_json_round_trips_on_one_ascii_line(value):
    text = dumps(value)
    assert loads(text) == value
    assert text.isascii()
    assert "\n" not in text


def test_a_lone_surrogate_in_a_traceback_can_be_written(tmp_path):
    write_json_atomic(tmp_path / "x.json", {"traceback": "caf\udce9"})
    assert read_json(tmp_path / "x.json") == {"traceback": "caf\udce9"}


def test_a_failed_write_leaves_the_old_content_and_nothing_beside_it(tmp_path):
    path = tmp_path / "x.json"
    write_text_atomic(path, "old")

    def write_half():
        with replacing(path) as file:
            file.write(b"half")
            assert path.read_text() == "old"  # readers see the old content until the end
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_half()
    with pytest.raises(TypeError):
        write_json_atomic(path, object())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_written_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_text_atomic(tmp_path / "atomic", "x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_read_json_names_the_file(tmp_path):
    with pytest.raises(StoreError, match=r"none\.json: the file is missing\.$"):
        read_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(
        StoreError, match=r"bad\.json: is not JSON \(.*\)\. Restore or delete it\.$"
    ):
        read_json(tmp_path / "bad.json")


def test_a_link_is_replaced_and_relative(tmp_path):
    link_atomic(tmp_path / "latest", "step-000001")
    link_atomic(tmp_path / "latest", "step-000002")
    assert os.readlink(tmp_path / "latest") == "step-000002"
    assert os.listdir(tmp_path) == ["latest"]


@pytest.mark.parametrize(
    "body", [b"", b"a\n", b"a\nb", b"no newline", b"x" * 200_000, b"a\n" + b"y" * 140_000]
)
def test_the_torn_tail_is_what_follows_the_last_newline(tmp_path, body):
    path = tmp_path / "f"
    path.write_bytes(body)
    fd = os.open(path, os.O_RDWR)
    try:
        assert torn_tail(fd) == body.rpartition(b"\n")[2]
    finally:
        os.close(fd)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "f"
    fd = os.open("/dev/full", os.O_RDWR)
    try:
        with pytest.raises(OSError, match="No space left") as caught:
            write_line(fd, b"line\n", path)
    finally:
        os.close(fd)
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match="No space left") as caught, replacing(path):
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(path)


def test_an_error_of_a_library_keeps_its_text(tmp_path):
    """pyarrow raises an OSError with a text alone; a file name would hide it."""
    with pytest.raises(OSError, match=r"^the codec gave up$"), replacing(tmp_path / "f"):
        raise OSError("the codec gave up")


def test_a_partial_write_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"whole\n")
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    full = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: full(fd, data[:3]))  # a full disk
    try:
        with pytest.raises(OSError, match="only 3 of 9 bytes fitted"):
            write_line(fd, b"too long\n", path)
    finally:
        os.close(fd)
    assert path.read_bytes() == b"whole\n"
