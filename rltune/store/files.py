"""Files that survive a crash: atomic replacement, whole-line appends, strict JSON.

JSON here is strict. NaN and the infinities have no JSON number, so they are written as
the strings "NaN", "Infinity" and "-Infinity" (as Weights & Biases does) and nothing is
lost; `jsonl.read_metrics` turns them back into floats, and so does `float(...)` on any of them.
"""

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from rltune.errors import Problem, StoreError

_CHUNK = 65536


def utc_now() -> str:
    """Return the time as `2026-01-31T12:00:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_json(value: object) -> Any:
    """Return `value` as plain JSON data: dicts, lists, strings, numbers, booleans, None.

    Dataclasses become objects, paths strings, arrays and tensors lists; floats that are
    not finite become the strings of the module docstring.

    Raises:
        TypeError: A value has no JSON form, or a key is not a string.

    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _float_to_json(float(value))
    if isinstance(value, Mapping):
        return {_key(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Path):
        return str(value)
    if callable(
        tolist := getattr(value, "tolist", None)
    ):  # numpy and torch, without importing them
        return to_json(tolist())
    raise TypeError(f"{value!r} of type {type(value).__name__} has no JSON form")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"JSON keys are strings, got {key!r}")
    return key


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def dumps(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Return strict JSON.

    Pure ASCII, so that no text (a lone surrogate in a traceback) can refuse to be written.
    """
    separators = (",", ": ") if indent else (", ", ": ")
    return json.dumps(
        to_json(value), allow_nan=False, indent=indent, separators=separators, sort_keys=sort_keys
    )


def loads(text: str | bytes) -> Any:
    """Parse strict JSON.

    Raises:
        ValueError: It is not JSON; the bare words NaN and Infinity are not.

    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def fsync_dir(folder: Path) -> None:
    """Make renames and new names in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give an error of the system its path: a write to a full disk names none.

    Errors without a number are a library's own; with a path they would lose their text.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file whose content takes the place of `path` at the end, or not at all.

    Written beside it, flushed to disk, renamed over it: a reader sees the old content or
    the new, never a mixture, whenever the process or the machine dies.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with _naming(path), temp.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def write_text_atomic(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    data = text.encode()
    with replacing(path) as file:
        file.write(data)


def write_json_atomic(path: Path, value: object) -> None:
    """Write indented strict JSON atomically."""
    write_text_atomic(path, dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        StoreError: It is missing or not JSON.

    """
    try:
        return loads(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(Problem(str(path), "the file is missing.")) from None
    except ValueError as error:
        raise StoreError(
            Problem(str(path), f"is not JSON ({error}).", action="Restore or delete it.")
        ) from error


def link_atomic(link: Path, target: str) -> None:
    """Point the symlink `link` at the relative name `target`, replacing an older one atomically."""
    temp = link.with_name(f".{link.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    temp.symlink_to(target)
    try:
        os.replace(temp, link)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    fsync_dir(link.parent)


def write_line(fd: int, line: bytes, path: Path) -> None:
    """Write a full line with one `os.write`; take a partial write back.

    Raises:
        OSError: Not all of it fitted.

    """
    before = os.fstat(fd).st_size
    with _naming(path):
        written = os.write(fd, line)
    if written != len(line):
        os.ftruncate(fd, before)
        raise OSError(
            errno.ENOSPC, f"only {written} of {len(line)} bytes fitted; free some space", str(path)
        )


def torn_tail(fd: int) -> bytes:
    """Return the bytes after the last newline; empty when the file ends with one."""
    start = os.fstat(fd).st_size
    tail = b""
    while start > 0:
        size = min(_CHUNK, start)
        start -= size
        chunk = os.pread(fd, size, start)
        cut = chunk.rfind(b"\n")
        if cut >= 0:
            return chunk[cut + 1 :] + tail
        tail = chunk + tail
    return tail


def quarantine(path: Path, data: bytes, why: str) -> None:
    """Append `data` to `<name>.torn` under a dated note: nothing unreadable is thrown away."""
    note = f"# {utc_now()} {len(data)} bytes of {path.name}: {why}\n".encode()
    with path.with_name(path.name + ".torn").open("ab") as file:
        file.write(note + data.rstrip(b"\n") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def quarantine_tail(fd: int, path: Path, tail: bytes) -> None:
    """Move a torn tail out of the file. The copy is on disk before the cut."""
    quarantine(path, tail, "a last line without its newline, left by a killed writer")
    os.ftruncate(fd, os.fstat(fd).st_size - len(tail))


def sha256_file(path: Path) -> str:
    """Return the sha256 hex of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
