"""The zip of a bundle when writing or unpacking it breaks off."""

import shutil
import zipfile

import pytest

from rltune.errors import StoreError
from rltune.report.bundle.archive import LIST, unpack, write_zip


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / LIST).write_text("{}")
    return folder


def test_an_interrupted_zip_leaves_nothing_and_the_one_before_stays(root, tmp_path, monkeypatch):
    write_zip(root, tmp_path / "paper.zip")
    before = (tmp_path / "paper.zip").read_bytes()

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfileobj", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_zip(root, tmp_path / "paper.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paper.zip", "root"]
    assert (tmp_path / "paper.zip").read_bytes() == before


def test_two_that_write_one_zip_at_once_leave_a_whole_one(root, tmp_path, monkeypatch):
    copy, is_first = shutil.copyfileobj, [True]

    def both(source, target):
        if is_first.pop() if is_first else False:
            write_zip(root, tmp_path / "paper.zip")
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfileobj", both)
    write_zip(root, tmp_path / "paper.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paper.zip", "root"]
    assert zipfile.ZipFile(tmp_path / "paper.zip").testzip() is None


def test_a_full_disk_is_not_blamed_on_the_zip(root, tmp_path, monkeypatch):
    write_zip(root, tmp_path / "paper.zip")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    said = f"paper.zip: there is no room to unpack it in {tmp_path}. Free some"
    with pytest.raises(StoreError, match=said):
        unpack(tmp_path / "paper.zip", tmp_path / "there")
