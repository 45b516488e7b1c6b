"""A scripted judge on a thread of this process, and a client of it."""

import os
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from judge_requests import KEY, make_request
from judge_server import judge_server

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
    """Start servers that speak the protocol, and stop them."""
    with ExitStack() as servers:
        yield lambda *faults, **options: servers.enter_context(
            judge_server(*faults, key=os.environ["JUDGE_KEY"], **options)
        )


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
