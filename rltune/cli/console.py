"""Output of commands: a rich console, plain text off a terminal, or JSON."""

import errno
import os
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console, RenderableType

from rltune.report.markdown import visible
from rltune.store.files import dumps

STDOUT = "standard output"
"""What messages call it."""


class QuietConsole(Console):
    """A console without trailing blanks that falls silent when its reader is gone.

    A sweep must not end with the `head` that it was piped into, nor when the disk of its log is
    full. What is printed only to be read may say so: `is_needed`.
    """

    is_needed = False  # whether an error that loses what is printed is raised

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; long paths stay whole, and off a terminal no blanks fill lines up."""
        options.setdefault("crop", False)
        try:
            if self.is_terminal:
                super().print(*objects, **options)
                return
            with self.capture() as captured:
                super().print(*objects, **options)
            if not self.quiet:
                self.file.write("".join(f"{one.rstrip()}\n" for one in captured.get().splitlines()))
                self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()
        except OSError as error:
            self.quiet = True
            if error.errno == errno.EIO:  # the terminal is gone
                return
            discard_stdout()
            error.filename = STDOUT
            if self.is_needed:
                raise
            warn(f"warning: {STDOUT}: {error.strerror}. Nothing more is printed there.")

    def on_broken_pipe(self) -> None:
        """Go on without printing."""
        self.quiet = True
        discard_stdout()


def discard_stdout() -> None:
    """Send standard output, and what is still buffered for it, nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def make_console() -> QuietConsole:
    """Return the console of standard output; without colours under NO_COLOR."""
    return QuietConsole(
        markup=False,
        highlight=False,
        emoji=False,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
    )


def is_live(console: Console) -> bool:
    """Tell whether the console can redraw: FORCE_COLOR makes no terminal of a file."""
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


def show(item: RenderableType) -> None:
    """Print a drawing.

    Raises:
        OSError: There is no room for it.

    """
    console = make_console()
    console.is_needed = True
    console.print(item)


def emit_json(data: Any) -> None:
    """Print JSON, and nothing else; raises OSError where there is no room for it."""
    try:
        sys.stdout.write(dumps(data, indent=2) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        error.filename = STDOUT
        raise


def answer(data: Any, view: RenderableType, *, as_json: bool) -> None:
    """Print data as JSON, or as its drawing."""
    if as_json:
        emit_json(data)
    else:
        show(view)


def warn(text: str) -> None:
    """Print a warning on standard error; control characters in it are shown, not obeyed."""
    with suppress(OSError):  # a terminal that is gone ends no sweep
        print("\n".join(map(visible, text.split("\n"))), file=sys.stderr)
