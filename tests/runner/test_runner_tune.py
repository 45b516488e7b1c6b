import subprocess
import sys

import pytest

from rltune.errors import ResourceError

KILLED = """Failure # 1 (occurred at 2026-11-28_17-10-56)
The actor died unexpectedly before finishing this task.
\tactor_id: de003157033537e14cba792a01000000
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes \
include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop \
--force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another error.
"""
RAISED = """Failure # 1 (occurred at 2026-11-28_17-10-56)
ray::ImplicitFunc.train() (pid=8, ip=127.0.0.1, actor_id=de00, repr=_trainable)
  File "fork_server.py", line 174, in run_forked
    raise TaskError(problem)
rltune.runner.fork_server.TaskError: OSError: [Errno 28] No space left on device
"""


@pytest.mark.parametrize(
    ("report", "said"),
    [
        pytest.param(
            KILLED,
            "SYSTEM_ERROR: Worker unexpectedly exits with a connection error code 2. End of file. "
            "It was killed, ran out of memory (see `dmesg`) or crashed",
            id="killed",
        ),
        pytest.param("The node\n  died.", "The node died", id="another-report"),
        pytest.param(RAISED, "OSError: [Errno 28] No space left on device", id="raised"),
        pytest.param("", "Ray gave no reason", id="none"),
    ],
)
def test_a_death_is_told_in_one_line_without_advice_on_ray(report, said):
    from rltune.runner.tune import failure_text

    assert failure_text(report) == f"its process died: {said}"


def test_a_ray_that_somebody_else_started_is_refused(tmp_path, monkeypatch, small, make_payload):
    # A second Ctrl-C ends the launch's own Ray, and with it the trials. It may not end another's.
    import ray

    from rltune.runner.tune import TuneLaunch

    launch = TuneLaunch("l", tmp_path, [make_payload(small)], max_concurrent=1, address=None)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with pytest.raises(
        ResourceError,
        match=r"^ray\.init: Ray already runs in this process\. Call ray\.shutdown\(\)",
    ):
        launch.start()


LATE = "The current node timed out during startup. This could happen because"


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        pytest.param(
            None,
            Exception(LATE),  # bare, as Ray raises it
            rf"^ray\.init: Ray did not start on this machine: {LATE}\. Its load is \d+\.\d on "
            r"\d+ cores, and \d+\.\d GB of memory are free\. Run the same command again: ",
            id="late",
        ),
        pytest.param(None, TimeoutError(), r": TimeoutError\. Its load is ", id="no-words"),
        pytest.param(
            "10.0.0.1:6379",
            ConnectionError("nobody  is there.\nTraceback:\n"),
            r"^--ray-address: '10\.0\.0\.1:6379' cannot be used: nobody is there\. Check the ",
            id="address",
        ),
    ],
)
def test_a_ray_that_does_not_start_is_no_bug_of_ours(
    tmp_path, monkeypatch, small, make_payload, address, error, message
):
    import ray

    from rltune.runner.tune import TuneLaunch

    def init(**_):
        raise error

    monkeypatch.setattr(ray, "init", init)
    launch = TuneLaunch("l", tmp_path, [make_payload(small)], max_concurrent=1, address=address)
    launch.start()
    assert not launch.is_running(wait_s=60.0)
    with pytest.raises(ResourceError, match=message):
        launch.raise_error()


READS_AGAIN = """
import os

import ray
from ray._raylet import AuthenticationTokenLoader, get_authentication_mode

from rltune.runner.environment import apply_ray_environment
from rltune.runner.nodes import read_token_again

os.environ["RAY_AUTH_TOKEN"] = "of another cluster"
for _ in range(2):
    os.environ.pop("RAY_AUTH_MODE", None)
    apply_ray_environment(None)
    before = get_authentication_mode()
    read_token_again()
    token = AuthenticationTokenLoader.instance().get_raw_token(ignore_auth_mode=True)
    print(int(before), int(get_authentication_mode()), token == os.environ["RAY_AUTH_TOKEN"])
"""


@pytest.mark.slow
def test_a_token_is_read_although_ray_was_imported_before_there_was_one(monkeypatch):
    # Without it the driver sends none, and its own cluster refuses it.
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    command = [sys.executable, "-c", READS_AGAIN]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["0 1 True", "1 1 True"]


def test_a_launch_ends_when_nothing_runs_and_no_machine_is_left_for_what_waits(monkeypatch):
    from rltune.runner.tune import _Drained
    from rltune.runner.waiting import Waiting
    from rltune.runner.watch import Watch

    monkeypatch.setattr("rltune.runner.waiting.GRACE_S", 0.0)
    watch = Watch()
    end = _Drained(watch)
    assert not end.stop_all()
    watch.waiting = Waiting({"a": {"CPU": 2.0}}, lambda: [{"CPU": 1.0}])
    watch.running.add("b")
    assert not end.stop_all()
    watch.running.clear()
    assert end.stop_all()
    assert watch.unschedulable == {"a"}
