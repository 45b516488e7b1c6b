"""The console when what it prints to is gone."""

import io
import sys
from contextlib import contextmanager

import pytest

from rltune.cli.console import QuietConsole, emit_json, show, warn
from rltune.cli.entry import run


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


@contextmanager
def full_disk(monkeypatch):
    """Standard output goes to a disk that is full. No fixture: pytest sets it anew for the call."""
    with open("/dev/full", "w", encoding="utf-8") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        yield


def test_a_log_on_a_full_disk_ends_no_sweep(capfd, monkeypatch):
    with full_disk(monkeypatch):
        console = QuietConsole()
        console.print("step 1")
        console.print("step 2")
    said = "warning: standard output: No space left on device. Nothing more is printed there.\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("print_it", [lambda: show("x"), lambda: emit_json({"x": 1})])
def test_what_is_printed_to_be_read_says_that_it_is_lost(monkeypatch, print_it):
    lost = pytest.raises(OSError, match=r"No space left on device: 'standard output'")
    with full_disk(monkeypatch), lost:
        print_it()


def test_a_last_line_that_does_not_fit_is_an_error(capfd, monkeypatch):
    monkeypatch.setattr("rltune.cli.entry._dispatch", lambda _: print("last") or 0)
    with full_disk(monkeypatch):
        assert run([]) == 1
    assert capfd.readouterr().err == "error: standard output: No space left on device.\n"
