"""The process that forks trials: what a fork is like, and who dies with whom."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial

import psutil
import pytest
from fork_tasks import Worker
from patience import HANG_S, wait_until

from rltune.interpreter import module_command, module_environment
from rltune.runner import fork_server
from rltune.runner.fork_server import (
    MAIN,
    ForkJob,
    ForkServer,
    TaskError,
    run_forked,
    threads_to_fork,
)
from rltune.runner.trial import run_trial
from rltune.store.digest import metrics_digest
from rltune.store.provenance import read_provenance
from rltune.store.rundir import TrialDir

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="fork after imports: Linux only"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that has imported numpy alone; what one test does to a task harms no other one."""
    with ForkServer(tmp_path_factory.mktemp("f"), 1, ["numpy"]) as server:
        yield server


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pid_in(path):
    return wait_until(lambda: path.exists() and path.read_text() and int(path.read_text()))


def ask(server, tmp_path, name="state.json", **options):
    path = tmp_path / name
    assert Worker(server.address, "describe", path, **options).wait() == 0
    return json.loads(path.read_text())


def test_a_fork_is_set_up_as_its_worker(server, tmp_path):
    (tmp_path / "short").mkdir()
    environ = {"OF_WORKER": "yes", "TMPDIR": str(tmp_path / "short"), "OMP_NUM_THREADS": "3"}
    state = ask(server, tmp_path, cwd=tmp_path, environ=environ, niceness=7)
    assert state["group"] == state["pid"] != os.getpid()
    assert (state["variable"], state["openmp"], state["gpus"]) == ("yes", "3", "")
    assert (state["temporary"], state["cwd"]) == (str(tmp_path / "short"), str(tmp_path))
    assert (state["niceness"], state["input"]) == (
        os.getpriority(os.PRIO_PROCESS, 0) + 7,
        os.devnull,
    )
    assert state["threads"] == 1


def test_a_task_sees_nothing_of_the_one_before_it(server, tmp_path):
    first = ask(server, tmp_path, "first.json")
    second = ask(server, tmp_path, "second.json")
    assert first["left"] == second["left"] == [None, False]
    assert first["draw"] != second["draw"]  # as in two processes


def test_a_worker_whose_task_dies_dies_by_the_same_hand(server, tmp_path):
    worker = Worker(server.address, "sleep", tmp_path / "pid")
    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert Worker(server.address, "exit_at_once", "-").wait() == -signal.SIGKILL
    assert ask(server, tmp_path)  # the server goes on


def test_a_task_dies_with_its_worker_and_no_other_one_does(server, tmp_path):
    workers = [Worker(server.address, "sleep", tmp_path / name) for name in "ab"]
    first, second = (pid_in(tmp_path / name) for name in "ab")
    workers[0].kill()
    workers[0].wait()
    wait_until(lambda: is_gone(first))
    assert not is_gone(second)
    workers[1].kill()
    workers[1].wait()


@pytest.mark.slow
def test_tasks_die_with_the_server(tmp_path):
    (tmp_path / "f").mkdir()
    with ForkServer(tmp_path / "f", 1, []) as server:
        worker = Worker(server.address, "sleep", tmp_path / "pid")
        task = pid_in(tmp_path / "pid")
    wait_until(lambda: is_gone(task))
    assert worker.wait() == -signal.SIGKILL


def test_tasks_die_with_a_server_that_is_killed(tmp_path):
    (tmp_path / "f").mkdir()
    with ForkServer(tmp_path / "f", 1, []) as server:
        worker = Worker(server.address, "sleep", tmp_path / "pid")
        task = pid_in(tmp_path / "pid")
        psutil.Process(task).parent().kill()
        wait_until(lambda: is_gone(task))
        assert worker.wait() == -signal.SIGKILL
        message = r"^the process that .* goes on \(Connection refused\)$"
        with pytest.raises(TaskError, match=message):
            run_forked(print, server.address)


@pytest.mark.slow
def test_a_server_that_still_imports_is_ended(tmp_path, monkeypatch):
    (tmp_path / "slow_import.py").write_text("import time; time.sleep(900)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(fork_server, "_CLOSE_S", 0.5)
    with ForkServer(tmp_path, 1, ["slow_import"]) as server:
        worker = Worker(server.address, "describe", tmp_path / "state")
    assert worker.wait() != 0  # killed once it had asked, refused when it had not


@pytest.mark.slow
def test_all_die_with_a_driver_that_is_killed(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from rltune.runner.fork_server import *; "
        "server = ForkServer(Path(sys.argv[1]), 1, []); time.sleep(600)"
    )
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=module_environment())
    address = tmp_path / fork_server.SOCKET
    wait_until(address.exists)
    worker = Worker(address, "sleep", tmp_path / "pid")
    task = pid_in(tmp_path / "pid")
    parent = psutil.Process(task).ppid()
    driver.kill()
    driver.wait()
    wait_until(lambda: is_gone(task) and is_gone(parent))
    assert worker.wait() == -signal.SIGKILL


def test_what_a_task_raises_is_told(server):
    from fork_tasks import fail

    with pytest.raises(TaskError, match=r"^ValueError: no marker in x$"):
        run_forked(partial(fail, "x"), server.address)


def refuses_one(folder, module, match, *, times=1):
    """Assert that a server with this module refuses tasks beside one that runs, which goes on."""
    (folder / "f").mkdir()
    with ForkServer(folder / "f", 1, [module]) as server:
        worker = Worker(server.address, "sleep", folder / "pid")
        task = pid_in(folder / "pid")
        for _ in range(times):
            with pytest.raises(TaskError, match=match):
                run_forked(print, server.address)
        assert not is_gone(task)
        worker.kill()
        worker.wait()
        wait_until(lambda: is_gone(task))


def test_a_task_that_gets_no_process_is_told_so_and_the_others_go_on(tmp_path, monkeypatch):
    # The server's second fork fails, as at a limit on processes.
    (tmp_path / "few_forks.py").write_text(
        "import os\nforks = iter([os.fork])\n"
        "def fork():\n"
        "    if own := next(forks, None):\n        return own()\n"
        "    raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "os.fork = fork\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    refuses_one(tmp_path, "few_forks", r"^BlockingIOError: .* temporarily unavailable$")


@pytest.mark.slow
def test_a_task_for_which_no_file_is_left_is_told_so_and_the_others_go_on(tmp_path, monkeypatch):
    # Room for the bell (two files), the file in reserve, and one worker.
    (tmp_path / "few_files.py").write_text(
        "import os, resource\n"
        "files = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (files[-1] + 1,) * 2)\n"
        "for file in files:\n    os.close(file)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    # Twice: the file in reserve is there again.
    refuses_one(tmp_path, "few_files", r"^OSError: \[Errno 24\] Too many open files$", times=2)


def test_a_thread_that_never_ends_does_not_hold_up_the_next_task(server, tmp_path, monkeypatch):
    from fork_tasks import leave_thread

    monkeypatch.setattr(fork_server, "_END_S", 0.2)
    run_forked(partial(leave_thread, tmp_path / "pid"), server.address)
    wait_until(lambda: is_gone(pid_in(tmp_path / "pid")))


def test_a_fork_that_a_task_leaves_does_not_hold_up_the_next_one(server, tmp_path, monkeypatch):
    from fork_tasks import leave_child

    monkeypatch.setattr(fork_server, "_END_S", HANG_S)
    run_forked(partial(leave_child, tmp_path / "pid", apart=True), server.address)
    psutil.Process(pid_in(tmp_path / "pid")).kill()


def test_what_a_task_started_and_left_ends_with_it(server, tmp_path):
    from fork_tasks import leave_child

    run_forked(partial(leave_child, tmp_path / "pid"), server.address)
    wait_until(lambda: is_gone(pid_in(tmp_path / "pid")))


@pytest.mark.slow
def test_a_job_can_run_in_a_new_interpreter(tmp_path):
    # As when rltune's files or a package changed since the server imported them.
    from fork_tasks import describe

    ours, theirs = socket.socketpair()
    job = tmp_path / "job"
    task = ForkJob.like_this_process(partial(describe, str(tmp_path / "state")))
    job.write_bytes(pickle.dumps(task))
    with ours, theirs, job.open("rb") as file:
        descriptors = [theirs.fileno(), file.fileno()]
        done = subprocess.run(
            module_command(MAIN, "run", *map(str, descriptors)),
            env=module_environment(),
            pass_fds=descriptors,
            check=False,
        )
    assert done.returncode == 0
    assert json.loads((tmp_path / "state").read_text())["left"] == [None, False]


@pytest.mark.slow
def test_what_was_imported_and_has_changed_since_is_imported_anew(tmp_path, monkeypatch):
    # Another version of a package on disk; the path of the server alone knows the old one.
    package = tmp_path / "ray-0.0.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: ray\nVersion: 0.0.1\n")
    (tmp_path / "f").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with ForkServer(tmp_path / "f", 1, ["numpy", "colorsys"]) as server:
        assert ask(server, tmp_path, "before")["left"] == [None, True]
        (package / "METADATA").write_text("Name: ray\nVersion: 0.0.2\n")
        assert ask(server, tmp_path, "after")["left"] == [None, False]


@pytest.mark.parametrize(
    ("resources", "address", "threads"),
    [
        pytest.param([(1, 0), (1, 0)], None, 1, id="alike"),
        pytest.param([(4, 0)], None, 4, id="several-threads"),
        pytest.param([(1, 0), (2, 0)], None, None, id="threads-differ"),
        pytest.param([(1, 0), (1, 0.5)], None, None, id="gpu"),
        pytest.param([(1, 0)], "head:6379", None, id="cluster"),
    ],
)
def test_what_can_be_forked(small, make_payload, resources, address, threads):
    payload = make_payload(small)
    config = payload.spec.config
    payloads = [
        replace(
            payload,
            spec=replace(
                payload.spec,
                config={**config, "resources": {**config["resources"], "threads": n, "gpus": gpus}},
            ),
        )
        for n, gpus in resources
    ]
    assert threads_to_fork(payloads, address) == threads


@pytest.mark.slow
def test_a_trial_in_a_fork_is_bit_equal_to_one_in_this_process(small, make_payload, tmp_path):
    here, there = make_payload(small, name="here"), make_payload(small, name="there")
    (tmp_path / "f").mkdir()
    with ForkServer(tmp_path / "f", 1) as server:
        run_forked(partial(run_trial, there), server.address)
    run_trial(here)
    ours, theirs = TrialDir(here.folder), TrialDir(there.folder)
    assert metrics_digest(ours.metrics) == metrics_digest(theirs.metrics)
    assert ours.heldout.read_bytes() == theirs.heldout.read_bytes()
    weights = [trial.latest / "policy.safetensors" for trial in (ours, theirs)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert read_provenance(theirs)["pid"] not in (os.getpid(), read_provenance(ours)["pid"])


@pytest.mark.slow
def test_what_is_preloaded_starts_no_thread_and_no_gpu():
    code = (
        "import os, sys; from importlib import import_module; "
        "from rltune.runner.fork_server import PRELOAD; list(map(import_module, PRELOAD)); "
        "print(len(os.listdir('/proc/self/task')), sys.modules['torch'].cuda.is_initialized())"
    )
    environ = module_environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, "-c", code], env=environ, stdout=-1, text=True)
    assert done.stdout.split() == ["1", "False"]
