"""Names and digests of the files that a trial reads."""

import hashlib
import os
from pathlib import Path

import pytest
from cases import each

from rltune.store.inputs import (
    GONE,
    base_of,
    changed_since,
    digests,
    digests_now,
    file_digest,
    files_in,
    input_name,
    recorded_inputs,
    within,
)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@each(
    ("path", "name"),
    [
        ("a.txt", "a.txt"),
        ("data/../a.txt", "a.txt"),
        ("/work/base/data/a.txt", "data/a.txt"),
        ("/elsewhere/a.txt", "/elsewhere/a.txt"),
        ("../beside/a.txt", "/work/beside/a.txt"),
        ("/work/base2/a.txt", "/work/base2/a.txt"),  # a name that begins alike is another folder
    ],
)
def test_a_file_has_one_name_however_it_is_written(path, name):
    assert input_name(Path(path), Path("/work/base")) == name


def test_digests_change_with_the_content_alone(tmp_path):
    write(tmp_path / "a.txt", "one")
    recorded = digests([Path("a.txt"), tmp_path / "b.txt"], tmp_path)
    assert recorded == {"a.txt": sha("one"), "b.txt": GONE}
    assert changed_since(recorded, tmp_path) == ()
    os.utime(tmp_path / "a.txt", (1, 1))
    assert changed_since(recorded, tmp_path) == ()
    write(tmp_path / "a.txt", "two")  # of the same size
    write(tmp_path / "b.txt", "new")
    assert changed_since(recorded, tmp_path) == ("a.txt", "b.txt")
    (tmp_path / "a.txt").unlink()
    assert digests_now(recorded, tmp_path) == {"a.txt": GONE, "b.txt": sha("new")}


def test_a_folder_is_all_its_files(tmp_path):
    data = tmp_path / "data"
    for name in ("a.txt", "deep/b.txt", ".hidden", ".git/c", "__pycache__/d.pyc"):
        write(data / name, name)
    write(data / "runs" / "ledger.jsonl", "")
    write(data / "runs" / "trials" / "x" / "metrics.jsonl", "")
    assert [path.relative_to(data).as_posix() for path in files_in(data)] == ["a.txt", "deep/b.txt"]
    assert list(files_in(data / "a.txt")) == [data / "a.txt"]
    assert list(files_in(data / "none")) == []


def test_links_are_followed_and_end(tmp_path):
    write(tmp_path / "real" / "a.txt", "one")
    data = tmp_path / "data"
    data.mkdir()
    (data / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "loop").symlink_to(data)
    (data / "b.txt").symlink_to(tmp_path / "real" / "a.txt")
    names = [path.relative_to(data).as_posix() for path in files_in(data)]
    assert names == ["b.txt", "linked/a.txt"]
    before = file_digest(data / "b.txt")
    write(tmp_path / "real" / "a.txt", "two")
    assert file_digest(data / "b.txt") != before


def test_a_trial_s_folder_is_the_recorded_one_while_it_exists(tmp_path):
    here = tmp_path / "here"
    assert base_of({"base": str(tmp_path)}, otherwise=here) == tmp_path
    assert base_of({"base": str(tmp_path / "moved")}, otherwise=here) == here
    assert base_of({}, otherwise=here) == here


@pytest.mark.parametrize("base", [7, ["/tmp"], {"path": "/tmp"}, None, "", True, "\0"])
def test_a_base_that_is_no_text_counts_as_none(tmp_path, base):
    """As a provenance that is torn does."""
    assert base_of({"base": base}, otherwise=tmp_path) == tmp_path


def test_work_in_a_folder_ends_where_it_began(tmp_path):
    before = Path.cwd()
    with within(tmp_path):
        assert Path.cwd() == tmp_path
    assert Path.cwd() == before
    with within(tmp_path / "not here"):
        assert Path.cwd() == before


def test_an_older_record_has_no_inputs():
    assert recorded_inputs({}) == recorded_inputs({"inputs": None}) == {}
