"""Temporary folders: those of processes that have ended can be told from those of living ones."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from rltune.scratch import make_scratch, remove_abandoned

OWNER = """
import sys, time
from rltune.scratch import make_scratch
print(make_scratch("engine").path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner(temporary):
    """Return a process with a folder, and the folder."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)},
    )
    yield process, temporary / process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_folder_is_kept_while_its_owner_lives_and_goes_after_its_sigkill(owner):
    process, folder = owner
    (folder / "stderr").write_text("words")
    remove_abandoned()
    assert folder.is_dir()
    process.send_signal(signal.SIGKILL)
    process.wait()
    remove_abandoned()
    assert not folder.exists()


def test_its_own_folders_stay_until_they_are_removed():
    first, second = make_scratch("ranks"), make_scratch("ranks")
    remove_abandoned()
    assert first.path.is_dir()
    first.remove()
    assert not first.path.exists()
    assert second.path.name.startswith("rltune-ranks-")
    second.remove()


def test_nothing_without_a_free_lock_of_ours_is_touched(temporary):
    for name in ("rltune-engine-old", "other-x"):
        (temporary / name).mkdir()
    (temporary / "other-x" / "owner.lock").touch()
    (temporary / "rltune-link").mkdir()
    (temporary / "rltune-link" / "owner.lock").symlink_to(temporary / "other-x" / "owner.lock")
    remove_abandoned()
    assert len(list(temporary.iterdir())) == 3


def test_a_file_system_without_locks_still_has_folders(temporary, monkeypatch):
    def refuse(*given):
        raise OSError("no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    scratch = make_scratch("engine")
    assert scratch.path.is_dir()
    remove_abandoned()
    assert scratch.path.is_dir()
    scratch.remove()
    assert not scratch.path.exists()
