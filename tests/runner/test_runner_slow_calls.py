"""Custom code that hangs: told while it runs, refused before a sweep, given up at a stop."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rltune.errors import InputError, InterruptedRun
from rltune.runner.folder import freeze_all
from rltune.runner.launch_session import STOPPING
from rltune.runner.slow_calls import SlowCalls
from rltune.runner.trial import describe_failure, run_trial
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialStatus
from rltune_envs.errors import CustomCodeError
from rltune_envs.guard import Waiting
from rltune_envs.guard_batch import new_batch

ROOT = Path(__file__).resolve().parents[2]
SMALL = """
  policy: {{model: {policy}, dtype: float32}}
  resources: {{cpus: 1, gpus: 0, threads: 1}}
  tracking: {{wandb: disabled}}
  budget.steps: 2
  rollout: {{engine: torch, groups: 2, group_size: 2, max_response_tokens: 6, max_context: 600}}
  optim: {{mini_batch_size: 4, micro_batch_size: 4}}
"""
HANG = """
import os, threading
from pathlib import Path

def hang():
    Path(os.environ["HANGS"]).touch()
    threading.Event().wait()
"""


def waiting(seconds, *, is_new=True):
    return Waiting("score f()", "f.py:3, in f", seconds, 30.0, is_new)


def test_a_slow_call_is_told_once_and_the_next_one_again():
    told: list[str] = []
    slow = SlowCalls(told.append)
    for seconds in (5.0, 6.0, 7.0, 5.0, 6.0):
        slow(waiting(seconds, is_new=seconds == 5.0))
    said = "score f() has not returned for 5 s (f.py:3, in f); it may take 30 s, then it is a "
    assert told == [f"{said}fault"] * 2


def test_once_a_stop_is_asked_for_it_is_not_waited_for():
    is_asked: list[bool] = []
    slow = SlowCalls(lambda text: None, lambda: bool(is_asked))
    slow(waiting(5.0))
    is_asked.append(True)
    said = (
        r"^stopped while score f\(\) had not returned for 8 s \(f.py:3, in f\); the same command "
        "goes on from the last checkpoint$"
    )
    with pytest.raises(InterruptedRun, match=said):
        slow(waiting(8.0))


@pytest.fixture
def settle(tmp_path, small_policy, monkeypatch):
    """Return a function that writes a sweep of one's own env and reward, changed as told."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    new_batch()

    def settle(name, *, env="", reward=""):
        package = tmp_path / name
        shutil.copytree(ROOT / "examples", package, ignore=shutil.ignore_patterns("__pycache__"))
        coins = (ROOT / "tests" / "coin_env.py").read_text().replace("CoinEnv", "MyEnv")
        (package / "my_env.py").write_text(coins)  # with an expert: tasks are played when frozen
        for file, more in (("my_env.py", env), ("my_reward.py", reward)):
            path = package / file
            path.write_text(path.read_text() + HANG + more, encoding="utf-8")
        text = (package / "my_env.yaml").read_text().replace("examples.", f"{name}.")
        text = text.replace("\nhold:\n", f"\nhold:{SMALL.format(policy=small_policy)}", 1)
        sweep = tmp_path / "own.yaml"
        sweep.write_text(text.replace("seeds: [0, 1, 2]", "seeds: [0]"), encoding="utf-8")
        return sweep

    yield settle
    for module in [m for m in sys.modules if m.startswith("hangs_")]:
        sys.modules.pop(module)


REWARD = """
plain = score

def score(attempt):
    hang()

score.time_limit_s = 0.1
"""


def test_a_score_that_hangs_while_tasks_are_frozen_is_refused_with_its_line(
    settle, tmp_path, monkeypatch
):
    monkeypatch.setenv("HANGS", str(tmp_path / "hangs"))
    loaded = load_sweep(settle("hangs_score", reward=REWARD))
    with pytest.raises(InputError) as caught:
        freeze_all(RunDir(tmp_path / "run").create(), expand(loaded), base=tmp_path)
    said = str(caught.value)
    assert "verifier score: it did not return within 0.1 s (" in said
    assert f"{tmp_path}/hangs_score/my_reward.py:" in said
    assert said.startswith("env custom: its tasks cannot be frozen: ")


ENV = """
class Plain(MyEnv):
    pass

class MyEnv(Plain):
    def step(self, response):
        if "HANGS" in os.environ:
            hang()
        return super().step(response)
"""


SCORE = """
plain = score

def score(attempt):
    if "HANGS" in os.environ:
        hang()
    return plain(attempt)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("code", "what"),
    [
        ({"env": ENV}, "env MyEnv.step()"),
        ({"reward": SCORE}, "score score()"),
    ],
)
def test_a_trial_whose_code_hangs_ends_at_a_stop(
    settle, tmp_path, monkeypatch, make_payload, code, what
):
    loaded = load_sweep(settle(f"hangs_{next(iter(code))}", **code))
    stop = tmp_path / "stop"
    payload = make_payload(loaded, stop_file=stop)
    monkeypatch.setenv("HANGS", str(stop))  # the call that hangs asks for the stop itself
    monkeypatch.setattr("rltune_envs.guard.SLOW_S", 0.1)
    # The tokenizer of the small policy has no coins.
    monkeypatch.setattr(
        "rltune.trainer.preflight.learnable.require_learnable", lambda *a, **k: None
    )
    assert run_trial(payload) is TrialStatus.INTERRUPTED
    failure = RunDir(tmp_path / "run").trial(payload.spec.trial_id).read_failed()
    assert failure is not None
    assert failure.reason.startswith(f"stopped while {what} had not returned for 0 s (")
    assert ", in hang)" in failure.reason


PROGRAM = """
import sys
from rltune_envs import guard
guard.SLOW_S = 0.2
from rltune.cli.entry import run
sys.exit(run(["sweep", "own.yaml", "--runs-dir", "runs"]))
"""


@pytest.mark.slow
def test_the_first_signal_ends_a_driver_that_freezes_tasks(settle, tmp_path):
    settle("hangs_driver", reward=REWARD.replace("0.1", "1e6"))
    environment = {**os.environ, "HANGS": str(tmp_path / "hangs"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background may have passed on an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as driver:
        try:
            assert driver.stderr is not None
            told = next((line for line in driver.stderr if "has not returned" in line), "")
            driver.send_signal(signal.SIGINT)
            rest = driver.stderr.read()
            code = driver.wait()
        finally:
            driver.kill()
    assert told.startswith("warning: score score() has not returned for 0.2 s (")
    assert code == 3
    assert "interrupted; the same command goes on." in rest


def test_what_is_said_at_the_first_signal():
    assert STOPPING.startswith(
        "stopping: each running trial finishes its step and writes a checkpoint"
    )


def test_a_trial_that_custom_code_ends_says_its_line_and_nothing_of_rltune():
    error = CustomCodeError("env MyEnv.reset()", "it raised KeyError: 'gone' (env.py:3, in reset)")
    failure = describe_failure(error, step=None, attempt=1)
    assert failure.kind is RowStatus.PREFLIGHT_CRASH
    assert failure.reason == (
        "env MyEnv.reset(): it raised KeyError: 'gone' (env.py:3, in reset). Repair it; the same "
        "command goes on"
    )
