"""Custom code in a process of its own: whatever it does there is one error, and never the end."""

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pytest
from patience import HANG_S, wait_until

from rltune_envs.errors import CustomCodeError, HungCodeError
from rltune_envs.guard import call_in_process
from rltune_envs.guard_batch import MAX_HUNG, at_place, current_batch, new_batch
from rltune_envs.guard_process import Process, Processes, processes
from rltune_envs.guarded import guarded_score

HERE = Path(__file__).parent
CALLS = HERE / "process_calls.py"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    new_batch()
    yield
    new_batch()
    processes().end()


def ask(name, argument=None, **options):
    return call_in_process("score f()", f"process_calls:{name}", argument, **options)


def line_of(name):
    lines = enumerate(CALLS.read_text().splitlines(), 1)
    (number,) = [number for number, line in lines if line.startswith(f"def {name}(")]
    return number + 1


def has_gone(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_value_comes_back():
    assert ask("double", 21) == 42
    assert ask("double", "ab") == "abab"


def test_calls_are_made_in_one_process_that_is_another():
    assert ask("pid") == ask("pid") != os.getpid()


SAID = {
    "down": "it raised KeyError: 'gone' ({file}:{line}, in down)",
    "exits": "it raised SystemExit: 3 ({file}:{line}, in exits)",
    "leaves": "its process ended with exit status 7",
    "is_killed": "its process ended by SIGKILL",
    "late": "it returned a coroutine; define it with def, not async def",
}


@pytest.mark.parametrize("name", SAID)
def test_what_it_does_is_an_error_of_the_call(name):
    line = None if name == "late" else line_of(name)
    with pytest.raises(CustomCodeError) as caught:
        ask(name)
    assert str(caught.value) == f"score f(): {SAID[name].format(file=CALLS, line=line)}"
    assert ask("double", 1) == 2


def test_what_cannot_be_copied():
    with pytest.raises(CustomCodeError, match=r"^score f\(\): it returned a function, which canno"):
        ask("returns_a_function")
    with pytest.raises(CustomCodeError, match=r"^score f\(\): its arguments cannot be copied to a"):
        ask("double", lambda: 1)
    assert ask("double", 1) == 2


def test_a_path_that_names_nothing_never_calls_what_was_called_before():
    assert ask("double", 1) == 2
    for _ in range(2):
        with pytest.raises(CustomCodeError, match=r"it raised ImportPathError: 'process_calls:tw"):
            ask("twice", 1)
    assert ask("double", 1) == 2


def test_a_process_that_has_not_said_that_it_is_ready_is_not_asked_where_it_is():
    process = Process()
    process.load("f", "process_calls:double", limit_s=1)
    assert process.answer(HANG_S) is not None
    assert process.place("")
    os.ftruncate(process._trace.fileno(), 0)
    assert process.place("") == ""
    process.end()


def test_a_runaway_regular_expression_is_ended_and_its_line_named():
    import process_calls  # noqa: F401 - as the trial that checked the path has done

    before = ask("pid")
    line = line_of("runaway")
    with pytest.raises(HungCodeError) as caught:
        ask("runaway", "a" * 60 + "b", limit_s=0.2)
    place = f"{CALLS}:{line}, in runaway"
    assert str(caught.value) == f"score f(): it did not return within 0.2 s ({place})"
    assert has_gone(before)
    assert ask("pid") != before


def test_a_call_that_forks_answers_once():
    assert [ask("forks"), ask("double", 1), ask("double", 2)] == [True, 2, 4]


@pytest.mark.slow
def test_what_a_call_started_ends_with_it(tmp_path):
    file = tmp_path / "pid"
    with pytest.raises(HungCodeError):
        ask("starts_one_that_hangs", str(file), limit_s=0.5)
    wait_until(lambda: has_gone(int(file.read_text())))


def test_a_process_that_cannot_be_started_is_an_error_of_the_call(monkeypatch):
    processes().end()

    def refuse(*args, **options):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(CustomCodeError) as caught:
            ask("double", 1)
    assert str(caught.value).startswith("score f(): no process can be started for it: BlockingIO")
    assert ask("double", 1) == 2


def test_a_call_that_cuts_the_connection_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("rltune_envs.guard_process._END_S", 0.1)
    before = ask("pid")
    with pytest.raises(CustomCodeError, match="it closed the files of its process"):
        ask("closes_all_files")
    assert has_gone(before)
    assert ask("double", 1) == 2


def test_what_waited_for_a_free_process_is_not_called_after_too_many_hung(monkeypatch):
    lent = Processes(1)
    monkeypatch.setattr("rltune_envs.guard.processes", lambda: lent)
    batch = current_batch()

    def wait_and_ask():
        at_the_door.set()
        with at_place(1), pytest.raises(HungCodeError, match="not called: 3 calls before it"):
            ask("double", 1)
        return True

    at_the_door = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with lent.borrow():
            waiting = pool.submit(copy_context().run, wait_and_ask)
            at_the_door.wait(HANG_S)
            wait_until(lambda: 1 in batch._first_calls)
            for _ in range(MAX_HUNG):
                batch.count_hung()
        assert waiting.result(HANG_S)
    lent.end()


def test_after_some_calls_that_hang_the_rest_of_a_batch_is_not_made():
    for _ in range(MAX_HUNG):
        with pytest.raises(HungCodeError, match="did not return"):
            ask("sleeps", limit_s=0.05)
    with pytest.raises(HungCodeError, match="not called: 3 calls before it did not return"):
        ask("double", 1)


@pytest.mark.parametrize("call", ["writes_pid", "runs_away_after_pid"])
def test_a_process_ends_with_the_one_that_started_it(tmp_path, call):
    """Also one whose call never releases the interpreter."""
    file = tmp_path / "pid"
    program = (
        "import os, signal, threading, time\n"
        "from pathlib import Path\n"
        "from rltune_envs.guard import call_in_process\n"
        f"file, ask = Path({str(file)!r}), lambda: call_in_process('f', 'process_calls:{call}', "
        f"{str(file)!r})\n"
        "threading.Thread(target=ask, daemon=True).start()\n"
        "while not (file.exists() and file.read_text()): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    paths = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths})
    wait_until(lambda: has_gone(int(file.read_text())))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_starts_its_own():
    ours = ask("pid")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        theirs = ask("pid")
        processes().end()
        os.write(write, str(theirs).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = int(os.read(read, 100))
    os.close(read)
    os.close(write)
    assert theirs not in (ours, os.getpid())
    assert ask("pid") == ours


def test_there_are_no_more_than_allowed():
    lent = Processes(1)
    with lent.borrow() as process:
        assert not lent._room.acquire(blocking=False)
    with lent.borrow() as again:
        assert again is process
    lent.end()


def test_a_score_says_that_it_wants_a_process(monkeypatch):
    import process_calls

    monkeypatch.setattr(process_calls.pid, "in_process", True, raising=False)
    score = guarded_score(process_calls.pid, "process_calls:pid")
    assert score(None) != os.getpid()
    monkeypatch.setattr(process_calls.pid, "in_process", False)
    assert score(None) == os.getpid()
