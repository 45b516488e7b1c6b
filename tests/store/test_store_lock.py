import os
import signal
import socket
import subprocess
import sys

import pytest
from patience import HANG_S

from rltune.errors import StoreError
from rltune.store.lock import file_lock, read_driver, take_driver_lock

HOLD = """
import sys, time
from pathlib import Path
from rltune.store.lock import take_driver_lock
lock = take_driver_lock(Path(sys.argv[1]), argv=["rltune", "sweep", "kl.yaml"])
print("held", flush=True)
time.sleep(900)
"""


@pytest.fixture
def holder(tmp_path):
    """A real process that drives the sweep."""
    path = tmp_path / "driver.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield path, process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_driver_is_refused_and_told_who_the_first_is(holder):
    path, process = holder
    with pytest.raises(StoreError) as refusal:
        take_driver_lock(path, argv=["rltune"], patience_s=0.05)
    info = read_driver(path)
    assert (info.pid, info.host) == (process.pid, socket.gethostname())
    assert info.argv == ("rltune", "sweep", "kl.yaml")
    assert str(refusal.value) == (
        f"{path}: this sweep is already driven by process {process.pid} on {info.host} since "
        f"{info.started} (`rltune sweep kl.yaml`). Wait for it, or stop it on {info.host} with "
        f"`kill -INT {process.pid}` and run this command again."
    )


def test_the_lock_of_a_killed_driver_is_free_at_once(holder):
    path, process = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert path.read_text() != ""  # it still names the dead driver
    assert read_driver(path) is None
    with take_driver_lock(path, argv=["rltune"], patience_s=0.0) as lock:
        assert lock.info.pid == os.getpid()
        assert read_driver(path) == lock.info
    assert read_driver(path) is None


def test_two_drivers_in_one_process_are_two_drivers(tmp_path):
    path = tmp_path / "driver.lock"
    first = take_driver_lock(path, argv=[])
    with pytest.raises(StoreError, match=f"already driven by process {os.getpid()} on"):
        take_driver_lock(path, argv=[], patience_s=0.0)
    first.release()
    first.release()
    take_driver_lock(path, argv=[], patience_s=0.0).release()


def test_a_driver_that_has_not_said_who_it_is_still_holds(holder):
    path, _ = holder
    path.write_text("")
    with pytest.raises(StoreError, match="another process that is just starting"):
        take_driver_lock(path, argv=[], patience_s=0.0)
    assert read_driver(path).host == "unknown"


def test_nobody_drives_a_sweep_without_a_lock_file(tmp_path):
    assert read_driver(tmp_path / "none.lock") is None
    assert list(tmp_path.iterdir()) == []


def test_a_child_that_is_started_by_the_driver_does_not_hold_its_lock(tmp_path):
    path = tmp_path / "driver.lock"
    lock = take_driver_lock(path, argv=[])
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
    )
    lock.release()
    try:  # patience: the system closes what a program does not inherit while it starts
        take_driver_lock(path, argv=[], patience_s=HANG_S).release()
    finally:
        child.communicate(b"\n")


def test_a_file_lock_gives_up_after_its_timeout(tmp_path):
    path = tmp_path / "x.lock"
    with (
        file_lock(path),
        pytest.raises(StoreError, match=r"another process has held this lock for 0\.02 s"),
        file_lock(path, timeout_s=0.02),
    ):
        pass
    with file_lock(path, timeout_s=0.0):
        pass


def test_a_file_lock_waits_for_its_turn(tmp_path):
    path, finished = tmp_path / "x.lock", tmp_path / "finished"
    script = (
        "import sys, time; from pathlib import Path; from rltune.store.lock import file_lock\n"
        "with file_lock(Path(sys.argv[1])):\n"
        "    print('held', flush=True); time.sleep(0.2); Path(sys.argv[2]).touch()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(finished)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    with file_lock(path, timeout_s=HANG_S):
        assert finished.exists()
    assert process.wait() == 0
    process.stdout.close()
