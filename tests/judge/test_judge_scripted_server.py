"""The scripted server by itself: what it speaks, and what it refuses."""

import json
import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest
from judge_requests import KEY, make_request
from patience import HANG_S

from rltune.judge.prompt import first_messages
from rltune.judge.scripted_server import FAULTS, parse_faults, verdicts_of

HEADERS = {"Authorization": f"Bearer {KEY}"}


def post(server, body, headers=HEADERS, path="/chat/completions"):
    return httpx.post(server.url + path, json=body, headers=headers, trust_env=False)


def test_a_completion_has_the_fields_of_the_protocol(serve):
    messages = first_messages(make_request(), max_chars=100)
    answer = post(serve(), {"model": "m", "messages": messages}).json()
    assert (answer["object"], answer["model"]) == ("chat.completion", "m")
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert choice["message"]["role"] == "assistant"
    words = [entry["verdict"] for entry in json.loads(choice["message"]["content"])["verdicts"]]
    assert words == ["GOOD", "BAD", "GOOD"]
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0


def test_faults_come_in_order_and_then_none(key):
    """From the process that the command starts, until it is asked to end."""
    command = [sys.executable, "-m", "rltune.judge.scripted_server", "--faults", "500,429*2"]
    command += ["--key-env", "JUDGE_KEY"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        server = SimpleNamespace(url=process.stdout.readline().strip())
        body = {"model": "m", "messages": first_messages(make_request(), max_chars=100)}
        assert [post(server, body).status_code for _ in range(4)] == [500, 429, 429, 200]
        process.terminate()
        assert process.wait(timeout=HANG_S) == 0


def test_what_is_no_trajectory_is_refused(serve):
    server = serve()
    assert post(server, {"messages": []}).status_code == 400
    assert post(server, {"messages": [{"role": "user", "content": "hi"}]}).status_code == 400
    assert post(server, {}, headers={}).status_code == 401
    assert post(server, {}, path="/embeddings").status_code == 404


def test_a_last_step_without_observation_follows_the_outcome():
    def messages(is_success):
        shown = {"steps": [{"observation": ""}], "succeeded": is_success}
        return [{"role": "user", "content": json.dumps(shown)}]

    assert verdicts_of(messages(True)) == [True]
    assert verdicts_of(messages(False)) == [False]


def test_parse_faults():
    assert parse_faults("") == []
    assert parse_faults("429*2, ok,hang") == ["429", "429", "ok", "hang"]
    assert parse_faults(",".join(FAULTS)) == list(FAULTS)
    with pytest.raises(
        ValueError, match=r"^--faults: '418' is not a fault\. Choose from ok, one_b"
    ):
        parse_faults("418")
    with pytest.raises(ValueError, match=r"^--faults: 'ok\*x' is not a fault\."):
        parse_faults("ok*x")


def test_an_unknown_fault_is_refused_at_the_start():
    command = [sys.executable, "-m", "rltune.judge.scripted_server", "--faults", "tired"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--faults: 'tired' is not a fault. Choose from ok," in done.stderr
