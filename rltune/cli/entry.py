"""Run a command line and return its exit code: 0 ok, 1 a trial failed, 2 refused, 3 interrupted.

Errors are one line per problem on standard error, never a traceback; a bug leaves its traceback
in a file and says where.
"""

import errno
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from rltune.cli.app import command
from rltune.cli.console import STDOUT, discard_stdout, warn
from rltune.errors import RltuneError
from rltune.report.markdown import cut
from rltune.runner.slow_calls import SlowCalls, last_words
from rltune.store.files import utc_now
from rltune.store.secret import masked
from rltune_envs.guard import supervised

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 3
_TYPER_INTERRUPT = 130  # what newer typers return for KeyboardInterrupt; older ones raise Abort
_SYSTEM = frozenset(  # the system refuses what was asked for: no permission, no room, no folder
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
    | {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE}
)

_LONGEST = 5000  # characters of a message: it may quote a whole file


def main() -> None:
    """Run the command line and exit."""
    _open_closed_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    _show_unencodable()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # `rltune status | head` has read enough
        discard_stdout()
        return OK
    except OSError as error:  # what was printed last does not fit on the disk
        discard_stdout()
        return _say(f"{STDOUT}: {error.strerror or error}.", FAILED)
    return code


def _open_closed_streams() -> None:
    """Open the standard streams that were closed: else the next file opened would take their place.

    A job without a terminal may have none of them; what is printed goes nowhere then.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _show_unencodable() -> None:
    """Escape characters that the terminal cannot encode; an error message may quote anything."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _dispatch(arguments: Sequence[str]) -> int:
    try:
        with supervised(SlowCalls(_warn), last_words()):
            result = command().main(list(arguments), prog_name="rltune", standalone_mode=False)
    except BrokenPipeError:
        raise
    except RltuneError as error:
        return _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _say("interrupted; the same command goes on.", INTERRUPTED)
    except Exception as error:
        return _explain(error)
    if result == _TYPER_INTERRUPT:
        return _say("interrupted; the same command goes on.", INTERRUPTED)
    return result if isinstance(result, int) else OK


def _explain(error: Exception) -> int:
    """Report any other exception: a usage error, an error of the system, or a bug."""
    message = getattr(error, "format_message", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        warn(str(error))
        return REFUSED
    if callable(message):  # every usage error has it; the class is private to typer
        usage = getattr(getattr(error, "ctx", None), "command_path", "rltune")
        text = message().rstrip(".")  # a suggestion of typer ends in `'check'?`
        return _say(f"{text}{'' if text.endswith('?') else '.'} See `{usage} --help`.", REFUSED)
    if type(error).__name__ == "Abort":
        return _say("interrupted; the same command goes on.", INTERRUPTED)
    if isinstance(error, OSError) and error.errno in _SYSTEM:
        name = error.filename2 or error.filename  # the second: of a file that takes its place
        where = f"{name}: " if name else ""
        return _say(f"{where}{error.strerror}.", FAILED)
    text = " ".join(str(error).split()) or "no message"
    path = _write_traceback(error)
    left = f"traceback in {path}" if path else "its traceback could not be written"
    return _say(f"{type(error).__name__}: {text}. This is a bug in rltune; {left}", FAILED)


def _say(text: str, code: int) -> int:
    for one in text.rstrip("\n").split("\n"):  # a value may hold other signs that end a line
        warn(f"error: {cut(masked(one), _LONGEST)}")
    return code


def _warn(text: str) -> None:
    warn(f"warning: {text}")


def _write_traceback(error: Exception) -> Path | None:
    """Write the traceback beside the runs, else to the temporary folder; None if neither works."""
    stamp = utc_now().replace(":", "").replace("-", "")
    name = f"rltune-bug-{stamp}-{os.getpid()}.txt"
    text = masked("".join(traceback.format_exception(error)))
    runs = Path(os.environ.get("RLTUNE_RUNS_DIR", "runs"))
    for folder in (runs, Path(tempfile.gettempdir())):
        try:
            if folder.is_dir():
                (folder / name).write_text(text, encoding="utf-8", errors="replace")
                return folder / name
        except OSError:
            continue
    return None
