"""The console when what it prints to is gone."""

import io
import sys

import pytest

from rltune.cli.console import QuietConsole, warn


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text):
        raise OSError(5, "Input/output error")

    def flush(self):
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_that_is_gone_ends_nothing(is_terminal):
    console = QuietConsole(file=Gone(), force_terminal=is_terminal)
    console.print("step 1")
    assert console.quiet
    console.print("step 2")


def test_a_warning_without_a_reader_ends_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Gone())
    warn("out of reach")
