"""Locks that end with their process: flock on a file that stays, released by the kernel."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from rltune.errors import Problem, StoreError
from rltune.store.files import dumps, loads, utc_now
from rltune.store.secret import masked

_POLL_S = 0.003


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """Who drives a sweep; the content of driver.lock."""

    pid: int
    host: str
    started: str
    argv: tuple[str, ...]


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _try_lock(fd: int, path: Path) -> bool:
    """Take the lock if it is free.

    Raises:
        StoreError: This file system has no locks.

    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            Problem(
                str(path),
                f"this file system cannot lock files ({error.strerror}).",
                action="Put the runs on a local disk with --runs-dir.",
            )
        ) from error
    return True


def _wait_lock(fd: int, path: Path, *, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not _try_lock(fd, path):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


@contextmanager
def file_lock(path: Path, *, timeout_s: float = 60.0) -> Iterator[int]:
    """Hold an exclusive lock on `path` for a moment. The file stays and means nothing by itself.

    Yields its descriptor: a child that inherits it holds the lock, too, until it ends.

    Raises:
        StoreError: Another process held it for `timeout_s`.

    """
    fd = _open_lock(path)
    try:
        if not _wait_lock(fd, path, timeout_s=timeout_s):
            raise StoreError(
                Problem(
                    str(path),
                    f"another process has held this lock for {timeout_s:g} s.",
                    action=f"Find it with `fuser {path}`; it may hang.",
                )
            )
        yield fd
    finally:
        os.close(fd)


class DriverLock:
    """The right to drive a sweep, held until `release` or the end of the process."""

    def __init__(self, fd: int, info: DriverInfo) -> None:
        self._fd: int | None = fd
        self.info = info

    def release(self) -> None:
        """Give the sweep up; may be called again."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> "DriverLock":
        """Return the lock."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Release."""
        self.release()


def take_driver_lock(path: Path, *, argv: Sequence[str], patience_s: float = 1.0) -> DriverLock:
    """Become the only driver of a sweep. What a dead driver left in the file is overwritten.

    Args:
        path: The sweep's driver.lock; created when missing, never deleted.
        argv: The command line, shown to whoever comes second.
        patience_s: How long to try. `read_driver` of another process holds the lock for an
            instant, which must not look like a driver.

    Raises:
        StoreError: Another driver lives; the message names it.

    """
    fd = _open_lock(path)
    try:
        if not _wait_lock(fd, path, timeout_s=patience_s):
            raise StoreError(_busy(path, _read_info(fd)))
        info = DriverInfo(
            os.getpid(), socket.gethostname(), utc_now(), tuple(masked(word) for word in argv)
        )
        content = dumps(info).encode() + b"\n"
        os.ftruncate(fd, 0)
        os.pwrite(fd, content, 0)
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        raise
    return DriverLock(fd, info)


def _busy(path: Path, info: DriverInfo | None) -> Problem:
    if info is None:
        who, action = "another process that is just starting", f"Find it with `fuser {path}`."
    else:
        who = f"process {info.pid} on {info.host} since {info.started} (`{' '.join(info.argv)}`)"
        action = (
            f"Wait for it, or stop it on {info.host} with `kill -INT {info.pid}` "
            "and run this command again."
        )
    return Problem(str(path), f"this sweep is already driven by {who}.", action=action)


def _read_info(fd: int) -> DriverInfo | None:
    try:
        data = loads(os.pread(fd, 1 << 20, 0))
        return DriverInfo(
            **{f.name: data[f.name] for f in fields(DriverInfo)} | {"argv": tuple(data["argv"])}
        )
    except (ValueError, KeyError, TypeError):
        return None


def read_driver(path: Path) -> DriverInfo | None:
    """Return who drives the sweep now; None when nobody does, whatever the file says."""
    if not path.exists():
        return None
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _try_lock(fd, path):
            return None
        return _read_info(fd) or DriverInfo(0, "unknown", "", ())
    finally:
        os.close(fd)
