"""Files that a trial reads, by content: their names, their digests, and what has changed since.

A file inside the folder that rltune is called in is named relative to that folder; any other by its
absolute path. Together with the folder, which is recorded beside, a name means one file everywhere.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from rltune.store.files import sha256_file

GONE = ""
"""Digest of a file that is not there."""


def input_name(path: Path, base: Path) -> str:
    """Return how records call a file: relative to `base` where it lies inside, else absolute.

    Links are kept as they are named.
    """
    folder, whole = os.path.abspath(base), os.path.abspath(base / path)
    is_inside = whole.startswith(folder.rstrip(os.sep) + os.sep)
    return Path(os.path.relpath(whole, folder) if is_inside else whole).as_posix()


def digests(paths: Iterable[Path], base: Path) -> dict[str, str]:
    """Return name -> sha256 of files, in order of their names."""
    named = {input_name(path, base): base / path for path in paths}
    return {name: file_digest(named[name]) for name in sorted(named)}


def digests_now(names: Iterable[str], base: Path) -> dict[str, str]:
    """Return name -> sha256 as the files are now; `GONE` for one that is not there."""
    return {name: file_digest(base / name) for name in names}


def changed_since(recorded: Mapping[str, str], base: Path) -> tuple[str, ...]:
    """Return the names of files that are not as a record has them, those that are gone included."""
    now = digests_now(recorded, base)
    return tuple(name for name, digest in recorded.items() if now[name] != digest)


def recorded_inputs(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return what a provenance.json says of its inputs; empty for an older one."""
    inputs = provenance.get("inputs")
    return dict(inputs) if isinstance(inputs, Mapping) else {}


def base_of(provenance: Mapping[str, Any], *, otherwise: Path) -> Path:
    """Return the folder that a trial's relative paths refer to.

    Args:
        provenance: provenance.json.
        otherwise: Taken where none is recorded or what is recorded is no text, or where that folder
            is gone: a project that was moved is found in the folder that the command is called in.

    """
    recorded = provenance.get("base")
    folder = Path(recorded) if isinstance(recorded, str) and recorded else None
    return folder if folder is not None and folder.is_dir() else otherwise


@contextmanager
def within(base: Path) -> Iterator[None]:
    """Work in a folder for a while, so that custom code finds what it names from there.

    One that this machine does not have changes nothing.
    """
    with chdir(base) if base.is_dir() else nullcontext():
        yield


def files_in(path: Path) -> Iterator[Path]:
    """Yield a file itself, or all files of a folder; hidden ones, caches and run folders left out.

    Links are followed, each folder once.
    """
    if path.is_file():
        yield path
        return
    seen: set[str] = set()
    for folder, folders, names in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = sorted(name for name in folders if _is_data(Path(folder, name)))
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def _is_data(folder: Path) -> bool:
    is_run = (folder / "ledger.jsonl").exists() and (folder / "trials").is_dir()
    return not (folder.name.startswith(".") or folder.name == "__pycache__" or is_run)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file; `GONE` when it cannot be read. Each content is read once."""
    try:
        stat = path.stat()
        return _digest(str(path.absolute()), stat.st_size, stat.st_mtime_ns, stat.st_ino)
    except OSError:
        return GONE


@cache
def _digest(path: str, size: int, mtime_ns: int, inode: int) -> str:
    return sha256_file(Path(path))
