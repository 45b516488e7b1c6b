"""Everything that a trial prints or logs goes to its own file, whoever runs it."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from rltune.store.files import write_text_atomic
from rltune.store.secret import masked, without_secrets

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OURS = ("rltune", "rltune_envs")


class _Formatter(logging.Formatter):
    """Blots secrets out: the exceptions and lines of libraries may hold a request's headers."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


@contextmanager
def logging_to(path: Path, *, level: str) -> Iterator[logging.Logger]:
    """Send logging, stdout and stderr of the whole process to the end of a file; undo it after.

    Also on the level of file descriptors: what C libraries and a dying interpreter print is
    the only trace of some crashes.

    Args:
        path: The file.
        level: Least severity of rltune's own lines; of other libraries' it is a warning at least,
            also where a library sets its own level.

    """
    root, least = logging.getLogger(), logging.getLevelNamesMapping()[level.upper()]
    with ExitStack() as stack:
        stack.callback(_blot, path)  # the last to be called, when the file is closed
        file = stack.enter_context(path.open("a", encoding="utf-8", buffering=1))
        stack.enter_context(_descriptors_to(file.fileno()))
        stack.enter_context(redirect_stdout(file))
        stack.enter_context(redirect_stderr(file))
        handler = logging.StreamHandler(file)
        handler.setFormatter(_Formatter(_FORMAT))
        handler.addFilter(lambda record: _is_worth_it(record, least))
        stack.callback(root.removeHandler, handler)
        root.addHandler(handler)
        for logger in (root, *map(logging.getLogger, _OURS)):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(max(least, logging.WARNING) if logger is root else least)
        yield logging.getLogger("rltune.trial")


def _blot(path: Path) -> None:
    """Blot out what never met a logger: prints of an environment, its children, C libraries."""
    with suppress(OSError, UnicodeError):  # a log must not decide how a trial ends
        text = path.read_text(encoding="utf-8", errors="backslashreplace")
        if (clean := without_secrets(text)) != text:
            write_text_atomic(path, clean)


def _is_worth_it(record: logging.LogRecord, least: int) -> bool:
    """Return whether a line is severe enough: a logger with a level of its own passes the root."""
    is_ours = record.name.partition(".")[0] in _OURS
    return record.levelno >= (least if is_ours else max(least, logging.WARNING))


@contextmanager
def _descriptors_to(target: int) -> Iterator[None]:
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):  # a closed or replaced stream has nothing to flush
            stream.flush()
    saved = {fd: os.dup(fd) for fd in (1, 2)}
    try:
        for fd in saved:
            os.dup2(target, fd)
        yield
    finally:
        for fd, copy in saved.items():
            os.dup2(copy, fd)
            os.close(copy)
