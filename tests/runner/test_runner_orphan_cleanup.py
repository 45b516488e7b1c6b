import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from patience import wait_until

from rltune.runner import orphan_cleanup
from rltune.runner.orphan_cleanup import MARK, OrphanCleanup, members

_DRIVER = """
import subprocess, sys, time
from rltune.runner.orphan_cleanup import OrphanCleanup
cleanup = OrphanCleanup(sys.argv[1])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
{end}
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "rltune-ray-x"
    path.mkdir()
    yield path
    for process in members(str(path)):
        process.kill()


def drive(folder, end):
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER.format(end=end), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process.stdout as said:
        return process, int(said.readline())


@pytest.mark.slow
def test_a_killed_driver_leaves_neither_processes_nor_folder(folder):
    driver, child = drive(folder, "time.sleep(600)")
    assert [process.pid for process in members(str(folder))] == [child]
    driver.kill()
    driver.wait()
    wait_until(lambda: not members(str(folder)))
    wait_until(lambda: not folder.exists())


@pytest.mark.slow
def test_an_orderly_end_kills_nothing(folder):
    driver, child = drive(folder, "cleanup.dismiss(); cleanup.dismiss()")
    assert driver.wait() == 0
    time.sleep(orphan_cleanup.GRACE_S / 4)
    (left,) = members(str(folder))
    assert (left.pid, folder.exists()) == (child, True)


def test_what_is_started_after_the_end_is_not_marked(folder, monkeypatch):
    monkeypatch.delenv(MARK, raising=False)
    ours = OrphanCleanup(str(folder))
    assert os.environ[MARK] == str(folder)
    ours.dismiss()
    assert MARK not in os.environ


def test_threads_may_end_it_at_the_same_time(folder, monkeypatch):
    # An abort does: the driver's thread and Tune's.
    monkeypatch.delenv(MARK, raising=False)
    ours = OrphanCleanup(str(folder))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: ours.dismiss(), range(64))) == [None] * 64
