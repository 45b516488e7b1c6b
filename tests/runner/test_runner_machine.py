"""Cores that a process may really use, and a folder whose path is short enough for sockets."""

import math
import os
import socket
import tempfile
from pathlib import Path

import pytest

from rltune.errors import ResourceError
from rltune.runner import machine
from rltune.runner.environment import OF_ANOTHER, apply_ray_environment, make_ray_folder
from rltune.runner.machine import (
    RAY_PREFIX,
    SHORT,
    cpu_quota,
    short_temporary_folder,
    socket_folder,
    usable_cores,
)

LETTERS = "job-folder-of-more-than-sixty-letters-as-some-clusters-make-them"


def write(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


CGROUPS = {
    "none": ({}, math.inf),
    "v2 without a limit": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"},
        math.inf,
    ),
    "v2 in a container": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"},
        2.5,
    ),
    "v2, the limit is further up": (
        {
            "proc/self/cgroup": "0::/user.slice/job.scope\n",
            "sys/fs/cgroup/user.slice/job.scope/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/cpu.max": "150000 50000\n",
        },
        3.0,
    ),
    "v2, the path is the host's": (
        {"proc/self/cgroup": "0::/docker/ab\n", "sys/fs/cgroup/cpu.max": "50000 100000"},
        0.5,
    ),
    "v1": (
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        4.0,
    ),
    "what cannot be read": (
        {"proc/self/cgroup": "0::/\nrubbish\n", "sys/fs/cgroup/cpu.max": "many 0\n"},
        math.inf,
    ),
}


@pytest.mark.parametrize(("files", "cores"), CGROUPS.values(), ids=CGROUPS)
def test_the_quota_of_a_control_group(tmp_path, files, cores):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpu_quota(tmp_path) == cores


@pytest.mark.parametrize(
    ("allowed", "quota", "cores"),
    [(8, math.inf, 8), (8, 2.5, 2), (2, 4.0, 2), (8, 0.5, 1)],
)
def test_cores_are_the_fewer_of_affinity_and_quota(monkeypatch, allowed, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(allowed)), raising=False)
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert usable_cores() == cores


@pytest.fixture
def long(tmp_path, monkeypatch):
    """Make the temporary folder one with a long path."""
    folder = tmp_path / LETTERS
    folder.mkdir()
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_a_long_temporary_folder_is_passed_over(long, tmp_path):
    assert tempfile.gettempdir() == str(long)
    assert socket_folder() == Path("/tmp")
    folder = make_ray_folder(tmp_path / "launch")
    try:
        assert folder.parent == Path("/tmp")
        assert list(long.iterdir()) == []
    finally:
        folder.rmdir()


def test_a_long_folder_for_ray_is_passed_over(tmp_path, long, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    assert socket_folder({"RAY_TMPDIR": str(long)}) == Path("/tmp")
    assert socket_folder({"RAY_TMPDIR": "/var/tmp"}) == Path("/var/tmp")
    assert socket_folder({"RAY_TMPDIR": "/no-such-folder"}) == Path("/tmp")


def test_a_path_of_the_longest_length_holds_a_socket(tmp_path):
    """The longest name is one that the system takes: one byte more is refused."""
    name = "/tmp/" + "x" * (SHORT - len("/tmp/"))
    assert machine.is_short(name)
    assert not machine.is_short(name + "x")
    assert len(name + machine._LONGEST) == machine.SOCKET_LIMIT
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(FileNotFoundError):
        one.bind(name + machine._LONGEST)  # no such folder, and not: too long
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(OSError, match="too long"):
        one.bind(name + machine._LONGEST + "xx")


def test_without_a_short_folder_nothing_starts(long, monkeypatch):
    monkeypatch.setattr(machine, "_SYSTEM", ("/no-such-folder",))
    for call in (socket_folder, lambda: apply_ray_environment(None)):
        with pytest.raises(ResourceError) as caught:
            call()
        assert str(caught.value) == (
            f"environment: TMPDIR: '{long}' has {len(str(long))} bytes, but a folder for "
            f"sockets may have at most {SHORT}; /no-such-folder cannot be written. Set RAY_TMPDIR "
            "to a writable folder with a shorter path."
        )
    assert ResourceError.exit_code == 2


def test_a_process_of_its_own_gets_a_short_one_and_leaves_nothing(long):
    with short_temporary_folder():
        folder = Path(tempfile.gettempdir())
        assert folder.parent == Path("/tmp") == Path(os.environ["TMPDIR"]).parent
        (folder / "file").write_text("x")
    assert not folder.exists()
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(long)


def test_a_short_one_stays(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    with short_temporary_folder():
        assert tempfile.gettempdir() == "/tmp"


@pytest.mark.parametrize("name", OF_ANOTHER)
def test_a_private_cluster_takes_nothing_of_another_one(monkeypatch, name):
    mine = {"RAY_TMPDIR": "/tmp", "RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS": "0"}
    monkeypatch.setattr("os.environ", environ := {name: "x", "RAY_TUNE_CALLBACKS": "a:b", **mine})
    apply_ray_environment(None)
    assert name not in environ
    assert "RAY_TUNE_CALLBACKS" not in environ
    assert environ.items() >= mine.items()


def test_the_prefix_is_that_of_the_longest_path():
    assert machine._LONGEST.startswith(f"/{RAY_PREFIX}")
