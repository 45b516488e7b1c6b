"""A folder that is whole, or not there."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from patience import HANG_S

from rltune.errors import StoreError
from rltune.store.new_folder import discard, is_being_written, new_folder

HOLD = """
import sys, time
from pathlib import Path
from rltune.store.new_folder import new_folder
with new_folder(Path(sys.argv[1]), "--out x") as part:
    (part / "config.json").write_text("{}")
    print("written", flush=True)
    time.sleep(600)
"""


def make(path, then=lambda: None):
    """Write a folder with one file, and do something before it is whole."""
    with new_folder(path, "--out model") as part:
        (part / "a").write_text("1")
        then()


def fail_with(error):
    raise error


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_appears_with_all_its_files(tmp_path):
    with new_folder(tmp_path / "deep" / "model", "--out model") as part:
        (part / "a").write_text("1")
        assert names(tmp_path / "deep") == [".model.part"]
    assert names(tmp_path / "deep") == ["model"]
    assert (tmp_path / "deep" / "model" / "a").read_text() == "1"


def test_an_empty_folder_may_be_there(tmp_path):
    (tmp_path / "model").mkdir()
    with new_folder(tmp_path / "model", "--out model") as part:
        (part / "a").write_text("1")
    assert names(tmp_path / "model") == ["a"]


@pytest.mark.parametrize("kind", ["files", "file"])
def test_what_is_there_is_left_alone(tmp_path, kind):
    path = tmp_path / "model"
    if kind == "files":
        path.mkdir()
        (path / "mine").write_text("1")
        what = "the folder has files in it"
    else:
        path.write_text("1")
        what = "it is a file"
    with pytest.raises(StoreError) as caught, new_folder(path, "--out model"):
        pass
    assert str(caught.value) == f"--out model: {what}. Give a new folder."
    assert names(tmp_path) == ["model"]


def test_a_folder_that_fills_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "model"

    def fill():
        path.mkdir()
        (path / "mine").write_text("1")

    with pytest.raises(StoreError, match="has files in it"):
        make(path, fill)
    assert names(path) == ["mine"]
    assert names(tmp_path) == ["model"]


def test_an_exception_leaves_nothing(tmp_path):
    with pytest.raises(KeyError):
        make(tmp_path / "model", lambda: fail_with(KeyError("x")))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_told(tmp_path, error):
    with pytest.raises(StoreError) as caught:
        make(tmp_path / "model", lambda: fail_with(error))
    assert str(caught.value).startswith("--out model: no space is left on its disk (")
    assert str(caught.value).endswith(
        " MiB are free); nothing was written. Free some space, or give a folder on another disk."
    )
    assert names(tmp_path) == []


def test_another_error_of_the_system_stays_as_it_is(tmp_path):
    with pytest.raises(PermissionError):
        make(tmp_path / "model", lambda: fail_with(PermissionError(13, "Permission denied")))


def test_one_of_two_at_once_is_refused(tmp_path):
    path = tmp_path / "model"
    with new_folder(path, "--out model") as part:
        (part / "a").write_text("1")
        with pytest.raises(StoreError) as caught, new_folder(path, "--out model"):
            pass
    assert str(caught.value) == (
        "--out model: another process is writing it. Wait for it, or give another folder."
    )
    assert names(path) == ["a"]


def test_a_killed_process_leaves_nothing_that_looks_whole_and_the_next_one_cleans_up(tmp_path):
    path = tmp_path / "model"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "written\n"
        with pytest.raises(StoreError, match="another process"), new_folder(path, "--out model"):
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=HANG_S)
        process.stdout.close()
    assert names(tmp_path) == [".model.part"]
    with new_folder(path, "--out model") as part:
        (part / "a").write_text("1")
    assert names(tmp_path) == ["model"]
    assert names(path) == ["a"]
    shutil.rmtree(path)


def test_a_folder_that_is_being_written_is_not_discarded(tmp_path):
    part = tmp_path / ".model.part"
    code = [sys.executable, "-c", HOLD, str(tmp_path / "model")]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "written\n"
            assert is_being_written(part)
            discard(part)
            assert names(part) == ["config.json"]
        finally:
            holder.kill()
    assert not is_being_written(part)
    discard(part)
    discard(part)
    assert names(tmp_path) == []
