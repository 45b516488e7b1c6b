"""Make a folder that is whole, or not there: written beside it under a hidden name, renamed."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rltune.errors import Problem, StoreError
from rltune.store.files import fsync_dir

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def new_folder(path: Path, where: str) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` at the end, or is removed on an exception.

    What a killed process left under the hidden name is removed by the next one.

    Args:
        path: It may exist if it is empty.
        where: What messages call it: `--out my-model`.

    Raises:
        StoreError: Something is there already, another process is writing it, or the disk is full.

    """
    path = path.resolve()
    require_free(path, where)
    part = path.with_name(f".{path.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(fd, part, where)
        _empty(part)
        try:
            yield part
            _place(part, path, where)
        except BaseException as error:
            shutil.rmtree(part, ignore_errors=True)
            if _is_full(error):
                raise StoreError(_full(path, where)) from error
            raise
    finally:
        os.close(fd)


def discard(part: Path) -> None:
    """Remove a hidden folder that a killed process left; one that a process writes stays."""
    try:
        fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # gone by now
        return
    try:
        if _is_ours(fd, part):
            shutil.rmtree(part, ignore_errors=True)
    finally:
        os.close(fd)


def is_being_written(part: Path) -> bool:
    """Return whether a process writes a hidden folder now."""
    try:
        fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _is_ours(fd, part)
    finally:
        os.close(fd)


def require_free(path: Path, where: str) -> None:
    """Refuse a folder in which something is, and a file.

    Raises:
        StoreError: It is one.

    """
    if path.is_dir() and any(path.iterdir()):
        what = "the folder has files in it."
    elif path.exists() and not path.is_dir():
        what = "it is a file."
    else:
        return
    raise StoreError(Problem(where, what, action="Give a new folder."))


def _lock(fd: int, part: Path, where: str) -> None:
    """Hold the hidden folder itself.

    Raises:
        StoreError: Another process does.

    """
    if not _is_ours(fd, part):
        what = "another process is writing it."
        raise StoreError(Problem(where, what, action="Wait for it, or give another folder."))


def _is_ours(fd: int, part: Path) -> bool:
    """Lock a hidden folder; it is that of another process if it was renamed by now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return part.is_dir() and os.fstat(fd).st_ino == part.stat().st_ino
    except OSError:
        return False


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _place(part: Path, path: Path, where: str) -> None:
    for file in part.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    fsync_dir(part)
    require_free(path, where)
    part.rename(path)
    fsync_dir(path.parent)


def _is_full(error: BaseException) -> bool:
    """Return whether a disk is full; safetensors says so in words only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return "No space left on device" in str(error) or "Disk quota exceeded" in str(error)


def _full(path: Path, where: str) -> Problem:
    free = shutil.disk_usage(path.parent).free / 2**20
    what = f"no space is left on its disk ({free:,.1f} MiB are free); nothing was written."
    return Problem(where, what, action="Free some space, or give a folder on another disk.")
