"""A scripted judge in a process of its own, and a client of it."""

import os
import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest
from judge_requests import KEY, make_request
from patience import HANG_S

from rltune.judge.client import LlmJudge


@pytest.fixture
def key(monkeypatch):
    """The key, in the variable that `ask` names; no proxy stands between."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    return KEY


@pytest.fixture
def serve(key):
    """Start servers, each a process that speaks the protocol, and stop them."""
    started = []

    def start(faults="", *, delay_s=0.0):
        command = [sys.executable, "-m", "rltune.judge.scripted_server", "--faults", faults]
        command += ["--delay-s", str(delay_s), "--key-env", "JUDGE_KEY"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        url = process.stdout.readline().strip()

        def stats():
            return httpx.get(f"{url.removesuffix('/v1')}/stats", trust_env=False).json()

        return SimpleNamespace(url=url, stats=stats, process=process)

    yield start
    for process in started:
        process.terminate()
        assert process.wait(timeout=HANG_S) == 0
        process.stdout.close()


@pytest.fixture
def ask(serve):
    """Judge requests against a server with these faults; return the result, log and server."""

    def judge(faults="", *, requests=None, usage=None, delay_s=0.0, **settings):
        server = serve(faults, delay_s=delay_s)
        log = []
        settings = {"backoff_s": 0.01, "timeout_s": 10.0, **settings}
        client = LlmJudge(base_url=server.url, api_key_env="JUDGE_KEY", **settings)
        requests = [make_request()] if requests is None else requests
        result = client.judge(requests, usage=usage, log=log.append)
        sent = [record["request"] for record in log]
        log.sort(key=lambda record: (record["request"], record["ask"], record["try"]))
        return SimpleNamespace(result=result, log=log, sent=sent, server=server)

    return judge
