"""Cores that a launch may use, and a folder whose path is short enough for sockets.

Imports no Ray.
"""

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rltune.errors import Problem, ResourceError

SOCKET_LIMIT = 103 if sys.platform == "darwin" else 107  # bytes of a Unix socket's path
RAY_PREFIX = "rltune-ray-"
_TEMPORARY_PREFIX = "rltune-tmp-"
_LONGEST = f"/{RAY_PREFIX}abcdefgh/session_2026-01-31_12-00-00_000000_4194304/sockets/plasma_store"
SHORT = SOCKET_LIMIT - len(_LONGEST)
"""Longest path of a folder below which a private cluster can keep its sockets, in bytes."""

_SYSTEM = ("/tmp", "/var/tmp")


def is_short(folder: str) -> bool:
    """Return whether sockets below a folder have paths that the system takes."""
    return len(os.fsencode(os.path.abspath(folder))) <= SHORT


def socket_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder below which sockets are kept.

    The first that is short enough and can be written: RAY_TMPDIR, the temporary folder (TMPDIR),
    /tmp, /var/tmp.

    Raises:
        ResourceError: No folder will do.

    """
    given = environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    wanted = (given, tempfile.gettempdir(), *_SYSTEM)
    for folder in dict.fromkeys(wanted):
        if is_short(folder) and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return Path(os.path.abspath(folder))
    where = "RAY_TMPDIR" if environ.get("RAY_TMPDIR") else "TMPDIR"
    length = len(os.fsencode(os.path.abspath(given)))
    what = f"{given!r} has {length} bytes, but a folder for sockets may have at most {SHORT}; "
    what += f"{' and '.join(_SYSTEM)} cannot be written."
    action = "Set RAY_TMPDIR to a writable folder with a shorter path."
    raise ResourceError(Problem(f"environment: {where}", what, action=action))


@contextmanager
def short_temporary_folder() -> Iterator[None]:
    """Give this process a temporary folder with a short path if its own is too long.

    Raises:
        ResourceError: There is no short folder that can be written.

    """
    if is_short(tempfile.gettempdir()):
        yield
        return
    folder = tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=socket_folder())
    given, cached = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    try:
        yield
    finally:
        tempfile.tempdir = cached
        if given is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = given
        shutil.rmtree(folder, ignore_errors=True)


def usable_cores() -> int:
    """Return how many cores this process may use: affinity and container's quota, at least one."""
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.floor(min(allowed, cpu_quota())))


def cpu_quota(root: Path = Path("/")) -> float:
    """Return the cores that the control group of this process may keep busy; inf without a limit.

    Args:
        root: Of the file system.

    """
    mounts = root / "sys" / "fs" / "cgroup"
    limits = [math.inf]
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "")
        if controllers == "":  # version 2
            limits += [_quota_v2(folder) for folder in _up(mounts, path)]
        elif "cpu" in controllers.split(","):
            for mount in (mounts / controllers, mounts / "cpu"):
                limits += [_quota_v1(folder) for folder in _up(mount, path)]
    return min(limits)


def _up(mount: Path, path: str) -> list[Path]:
    """Return the folder of a group and those of the groups that it is in."""
    inner = Path(path.lstrip("/"))
    return [mount / part for part in (inner, *inner.parents)]


def _quota_v2(folder: Path) -> float:
    return _ratio(*_read(folder / "cpu.max").split()[:2])


def _quota_v1(folder: Path) -> float:
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str = "", period: str = "") -> float:
    """Return a quota in periods; inf for `max`, -1, or what cannot be read."""
    try:
        cores = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):
        return math.inf
    return cores if cores > 0 else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
