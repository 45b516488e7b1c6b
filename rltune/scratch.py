"""Temporary folders whose owner can be seen to be gone, even after SIGKILL.

Each holds a file that its owner keeps locked. The system releases a lock when its process ends,
however it ends, so a folder whose lock is free was left behind.
"""

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

_NAME = "rltune-"
_LOCK = "owner.lock"


@dataclass(frozen=True, slots=True)
class Scratch:
    """A temporary folder of this process."""

    path: Path
    lock: int  # descriptor that keeps it

    def remove(self) -> None:
        """Remove the folder; to be called once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def make_scratch(kind: str) -> Scratch:
    """Make a folder `rltune-KIND-...` in the temporary folder; it is this process's until it ends.

    A file system without locks makes one that nobody can tell to be left behind.
    """
    path = Path(tempfile.mkdtemp(prefix=f"{_NAME}{kind}-"))
    unlocked = path / f".{_LOCK}"
    lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return Scratch(path, lock)
    unlocked.rename(path / _LOCK)  # under this name it has always been locked
    return Scratch(path, lock)


def remove_abandoned() -> None:
    """Remove what processes that have ended left in this user's temporary folder."""
    for lock in sorted(Path(tempfile.gettempdir()).glob(f"{_NAME}*/{_LOCK}")):
        if _is_free(lock):
            shutil.rmtree(lock.parent, ignore_errors=True)


def _is_free(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it has gone meanwhile, or is somebody else's
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return os.fstat(descriptor).st_uid == os.geteuid()
    finally:
        os.close(descriptor)
