"""The process of an engine that trials share: who starts it, and what its end leaves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from patience import wait_until
from shared_engines import Adapter, Rounding
from shared_host import hosting

from rltune.errors import EngineDiedError
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.shared.client import SharedEngine
from rltune.rollout.shared.host import EngineHosts, EnginePlace, engine_key

ASKED = [Request(n, [4, 5 + n], n) for n in range(4)]
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, max_context=200)


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def client(address, word="red"):
    return SharedEngine(Rounding, Adapter(word), dtype=torch.float32, address=address)


class Failing(Rounding):
    """An engine that fails in a way that nobody foresaw."""

    def generate(self, requests, params):
        raise KeyError("a page of the cache")


@pytest.mark.slow
def test_an_engine_that_ends_fails_its_trials_and_is_started_again_for_who_calls(tmp_path):
    """Killed, then broken by itself; it is there as soon as somebody calls, and not before."""
    with hosting(tmp_path / "engine") as host:
        assert host.pid is None
        first, second = client(host.address), client(host.address, "blue")
        killed = host.pid
        assert len(first.generate(ASKED, PARAMS)) == 4
        os.kill(killed, signal.SIGKILL)
        for engine in (first, second):
            with pytest.raises(EngineDiedError, match="the trials of this sweep share is gone"):
                engine.generate(ASKED, PARAMS)
            engine.close()
        failing = SharedEngine(Failing, Adapter("red"), dtype=torch.float32, address=host.address)
        assert host.pid != killed
        with pytest.raises(RuntimeError, match="a page of the cache"):
            failing.generate(ASKED, PARAMS)
        with pytest.raises(EngineDiedError) as caught:
            failing.generate(ASKED, PARAMS)
        assert "KeyError: 'a page of the cache'" in caught.value.__notes__[0]
        last = client(host.address)
        assert len(last.generate(ASKED, PARAMS)) == 4
        pid, folder = host.pid, host.address.parent
        last.close()
        assert not is_gone(pid)  # others may come
    assert is_gone(pid)
    assert not folder.exists()


_DRIVER = """
import sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from rltune.rollout.shared.host import EngineHost
host = EngineHost(Path(sys.argv[1]), gpu="", threads=1, variables={{}})
while True:
    host.keep()
    print(host.pid, flush=True)
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_the_engine_ends_with_a_driver_that_is_killed(tmp_path):
    folder = tmp_path / "engine"
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER.format(path=sys.path), str(folder)], stdout=subprocess.PIPE
    )
    try:
        wait_until((folder / "socket").exists)
        wait_until(lambda: driver.stdout.readline().strip() == b"None")
        engine = client(folder / "socket")
        (pid,) = (child.pid for child in psutil.Process(driver.pid).children())
        driver.kill()
        wait_until(lambda: is_gone(pid))
        assert not folder.exists()
        with pytest.raises(EngineDiedError):
            engine.generate(ASKED, PARAMS)
    finally:
        driver.kill()
        driver.communicate()


def config(**changes):
    tree = {
        "policy": {"model": "tiny", "lora": {"rank": 2}},
        "env": {"kind": "sokoban", "prompt": "compact", "size": 5},
        "rollout": {"engine": "torch", "max_context": 99, "vllm": {"eager": True}, "groups": 2},
        "resources": {"engine": "shared_by_sweep", "threads": 1, "gpus": 0.0},
        "loss": {"clip": 0.2},
    }
    for key, value in changes.items():
        section, name = key.split("__")
        tree[section] = {**tree[section], name: value}
    return tree


@pytest.mark.parametrize(
    "changes",
    [
        {"policy__model": "other"},
        {"policy__lora": {"rank": 4}},
        {"env__kind": "frozen_lake"},
        {"rollout__engine": "vllm"},
        {"rollout__max_context": 100},
        {"rollout__vllm": {"eager": False}},
        {"resources__threads": 2},
    ],
)
def test_trials_share_an_engine_where_base_and_settings_are_equal(changes):
    assert engine_key(config()) == engine_key(
        config(loss__clip=0.3, env__size=6, rollout__groups=4)
    )
    assert engine_key(config()) != engine_key(config(**changes))


def test_each_group_of_trials_has_an_engine_and_others_have_none(tmp_path):
    configs = {
        "a": config(),
        "b": config(policy__model="other"),
        "c": config(loss__clip=0.3),
        "d": config(resources__engine="own"),
        "e": config(),
    }
    with EngineHosts(configs, tmp_path, most=2, variables={}) as hosts:
        first, second = (tmp_path / f"engine-{n}" / "socket" for n in range(2))
        places = {name: hosts.place(name) for name in configs}
        assert places["a"] == places["c"] == places["e"] == EnginePlace(first, seats=2)
        assert places["b"] == EnginePlace(second, seats=1)
        assert places["d"] is None
        hosts.keep()  # nobody has called
        assert first.exists()
    assert not list(Path(tmp_path).iterdir())
