"""`rltune status --watch`: in a real terminal, off one, and how it ends."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import HANG_S
from run_folders import CRASH, TREATED, finished_sweep, mixed_sweep

from rltune.cli import inspect
from rltune.store.lock import take_driver_lock

ROOT = Path(__file__).parents[2]
MAIN = "from rltune.cli import inspect, main; inspect._WATCH_S = 0.05; main()"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][;m]")


class Terminal:
    """A command in a terminal of its own, and what it showed there so far."""

    def __init__(self, arguments, folder, **environment):
        self._main, end = pty.openpty()
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "CI")}
        env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}", "COLUMNS": "90", "LINES": "24"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments],
            cwd=folder, env=env | {"TERM": "xterm-256color"} | environment,
            stdin=end, stdout=end, stderr=end, start_new_session=True,
        )  # fmt: skip
        os.close(end)
        self.text = ""

    def read(self, until=None):
        """Read until a text was shown; without one, until the command has ended."""
        deadline = time.monotonic() + HANG_S
        while until is None or until not in self.text:
            ready, _, _ = select.select([self._main], [], [], deadline - time.monotonic())
            assert ready, f"{until!r} was not shown, but: {self.text!r}"
            try:
                self.text += os.read(self._main, 1 << 16).decode()
            except OSError:  # the other end is closed
                assert until is None, f"it ended: {self.text!r}"
                return

    def hang_up(self):
        os.close(self._main)
        self._main = None

    def close(self):
        self.process.kill()
        self.process.wait()
        if self._main is not None:
            self.hang_up()


@contextmanager
def terminal(*arguments, folder, **environment):
    found = Terminal(arguments, folder, **environment)
    try:
        yield found
    finally:
        found.close()


def test_a_failure_is_shown_at_once_and_ctrl_c_ends_quietly(tmp_path):
    writer = mixed_sweep(tmp_path)
    with (
        take_driver_lock(writer.run.lock, argv=["rltune"]),
        terminal("status", "--watch", folder=tmp_path) as shown,
    ):
        shown.read("kl: 1 running, 1 failed, 1 done, 3 pending")
        shown.read(" ago")
        assert "FAILED at step 7: kl_loss_coef=0.1, seed 0" in re.sub(
            r"\x1b\[[0-9;]*m", "", shown.text
        )
        assert "▁▅█" in shown.text
        assert COLOUR.search(shown.text)
        shown.text = ""
        writer.fail(writer.spec(TREATED, 2), CRASH)
        shown.read("log: runs/")
        assert "kl_loss_coef=0.1, seed 2: RuntimeError: out of memory" in shown.text
        shown.text = ""
        shown.process.send_signal(signal.SIGINT)
        shown.read()
    assert shown.process.wait() == 0
    assert "error" not in shown.text
    assert "\x1b[?25h" in shown.text  # the cursor is back
    assert "driven by process" in shown.text  # the last state stays on the screen


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_give_the_terminal_back_too(tmp_path, number):
    writer = mixed_sweep(tmp_path)
    with (
        take_driver_lock(writer.run.lock, argv=["rltune"]),
        terminal("status", "--watch", folder=tmp_path) as shown,
    ):
        shown.read(" ago")
        assert "\x1b[?25l" in shown.text
        shown.text = ""
        shown.process.send_signal(number)
        shown.read()
    assert shown.process.wait() == 0
    assert "\x1b[?25h" in shown.text  # the cursor is back
    assert "driven by process" in shown.text


@pytest.mark.slow
def test_a_watch_ends_with_its_terminal(tmp_path):
    writer = mixed_sweep(tmp_path)
    with (
        take_driver_lock(writer.run.lock, argv=["rltune"]),
        terminal("status", "--watch", folder=tmp_path) as shown,
    ):
        shown.read(" ago")
        shown.hang_up()
        shown.process.send_signal(signal.SIGHUP)
        shown.process.wait(HANG_S)
    assert list(tmp_path.rglob("rltune-bug-*")) == []


@pytest.mark.slow
def test_no_color_takes_the_colours_and_leaves_the_screen(tmp_path):
    writer = mixed_sweep(tmp_path)
    with (
        take_driver_lock(writer.run.lock, argv=["rltune"]) as lock,
        terminal("status", "--watch", folder=tmp_path, NO_COLOR="1") as shown,
    ):
        shown.read(" ago")
        lock.release()
        shown.read("not running now")
        shown.read()
    assert shown.process.wait() == 1  # a trial failed
    assert not COLOUR.search(shown.text)
    assert "\x1b[?25l" in shown.text  # a screen that is redrawn: the cursor was hidden


@pytest.mark.slow
def test_a_dumb_terminal_gets_plain_lines(tmp_path):
    writer = mixed_sweep(tmp_path)
    with (
        take_driver_lock(writer.run.lock, argv=["rltune"]) as lock,
        terminal("status", "--watch", folder=tmp_path, TERM="dumb", FORCE_COLOR="1") as shown,
    ):
        shown.read("kl_loss_coef=0.0, seed 1: goes on at step 10/20")
        lock.release()
        shown.read()
    assert "\x1b[?25l" not in shown.text
    assert "\x1b[1A" not in shown.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [{"FORCE_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}],
)
def test_a_pipe_gets_plain_lines_and_its_end_ends_the_watch(tmp_path, environment):
    """Nothing is redrawn in a file, whatever FORCE_COLOR says; `| head` ends a watch."""
    writer = mixed_sweep(tmp_path)
    spec = writer.spec(TREATED, 2)
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}", "COLUMNS": "60"} | environment
    with take_driver_lock(writer.run.lock, argv=["rltune"]):
        watch = subprocess.Popen(
            [sys.executable, "-c", MAIN, "status", "--watch"],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            lines = []
            while not any("goes on at step 10/20" in one for one in lines):
                lines.append(watch.stdout.readline().decode())
                assert lines[-1], watch.stderr.read().decode()
            watch.stdout.close()
            writer.fail(spec, CRASH)
            assert watch.wait(HANG_S) in (0, 1)
            assert watch.stderr.read() == b""
        finally:
            watch.kill()
            watch.wait()
            watch.stderr.close()
    text = "".join(lines)
    assert "\x1b[?25l" not in text
    if environment.get("FORCE_COLOR"):
        return
    assert "\x1b" not in text
    row = next(line for line in lines if "20/20" in line)  # not cut at 60 columns
    assert " ".join(row.split()) == "0.0 0 done 20/20 _=# 0.400 0.600 160 0:44 -"
    assert re.search(r"\d\d:\d\d:\d\d kl_loss_coef=0.0, seed 1: goes on at step 10/20\n$", text)


def test_ctrl_c_off_a_terminal_is_code_0(rltune, tmp_path, monkeypatch):
    writer = mixed_sweep(tmp_path)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect.time, "sleep", interrupt)
    with take_driver_lock(writer.run.lock, argv=["rltune"]):
        result = rltune("status", "--watch")
    assert (result.code, result.err) == (0, "")


def test_watch_and_json_exclude_each_other(rltune, tmp_path):
    finished_sweep(tmp_path)
    result = rltune("status", "--watch", "--json")
    assert result.code == 2
    assert result.err == (
        "error: --watch: --json prints the current state once. Leave one of them out.\n"
    )


@pytest.mark.slow
def test_what_an_encoding_lacks_is_shown_by_its_code(tmp_path):
    """A reason may quote anything; it must not end the command that prints it."""
    writer = finished_sweep(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "status", str(writer.run.path.rename(tmp_path / "ü"))],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"/\\xfc, " in done.stdout
