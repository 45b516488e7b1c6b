"""The key is read from the environment and stands nowhere else; settings out of range."""

import pickle
import subprocess
import sys

import pytest
from cases import each
from judge_requests import KEY, make_request

from rltune.errors import InputError
from rltune.judge.client import LlmJudge


def test_a_service_that_quotes_the_key_does_not_get_it_into_log_or_result(ask):
    asked = ask("401")
    assert "for Bearer ***" in asked.log[0]["detail"]
    assert KEY not in repr(asked.log) + repr(asked.result)


def test_the_key_is_struck_out_before_a_detail_is_cut(ask, monkeypatch):
    for length in range(150, 300, 15):  # the cut at 300 characters falls into it
        monkeypatch.setenv("JUDGE_KEY", "k" * length)
        asked = ask("500", max_retries=0)
        assert "kkk" not in repr(asked.log) + repr(asked.result)


def test_a_placeholder_is_no_secret(ask, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "GOOD")
    assert '"verdict": "GOOD"' in ask().log[0]["reply"]


def test_the_key_is_in_no_attribute(key):
    judge = LlmJudge(api_key_env="JUDGE_KEY")
    judge.require_ready()
    assert KEY not in repr(judge)
    assert KEY.encode() not in pickle.dumps(judge)


def test_a_wrong_key_is_refused(serve, monkeypatch):
    server = serve()
    monkeypatch.setenv("JUDGE_KEY", "sk-another-key")
    judge = LlmJudge(base_url=server.url, api_key_env="JUDGE_KEY")
    assert judge.judge([make_request()]).verdicts[0].status == "refused"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_no_key(monkeypatch, value):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("JUDGE_KEY", value)
    with pytest.raises(InputError) as caught:
        LlmJudge(api_key_env="JUDGE_KEY").judge([make_request()])
    assert str(caught.value) == (
        "attribution.llm.api_key_env: the environment variable 'JUDGE_KEY' is not set. Set it to "
        "the key, or to any text for a service that needs none."
    )


@pytest.mark.parametrize("value", ["sk-a b", "sk-\u00e9", "sk-a\nb"])
def test_no_possible_key_is_not_repeated(monkeypatch, value):
    monkeypatch.setenv("JUDGE_KEY", value)
    with pytest.raises(InputError) as caught:
        LlmJudge(api_key_env="JUDGE_KEY").require_ready()
    assert str(caught.value) == (
        "attribution.llm.api_key_env: the environment variable 'JUDGE_KEY' holds no key: it has "
        "spaces or characters that no key contains. Set it to the key alone."
    )


def test_the_key_in_the_place_of_its_name_is_not_repeated():
    with pytest.raises(ValueError, match="api_key_env") as caught:
        LlmJudge(api_key_env=KEY)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("url", [f"https://me:{KEY}@h/v1", f"https://h/v1?api_key={KEY}"])
def test_the_key_in_the_address_is_not_repeated(url):
    with pytest.raises(ValueError, match="base_url") as caught:
        LlmJudge(base_url=url)
    assert KEY not in str(caught.value)


REFUSED = [
    ({"max_calls": 0}, r"max_calls\n  Input should be greater than or equal to 1"),
    ({"max_concurrency": -1}, r"max_concurrency\n  Input should be greater than or equal to 1"),
    ({"timeout_s": 0.0}, r"timeout_s\n  Input should be greater than 0"),
    ({"deadline_s": float("inf")}, r"deadline_s\n  Input should be a finite number"),
    ({"max_retries": -1}, r"max_retries\n  Input should be greater than or equal to 0"),
    ({"temperature": float("nan")}, r"temperature\n  Input should be a finite number"),
    ({"max_chars": 0}, r"max_chars\n  Input should be greater than or equal to 1"),
]


@each(("settings", "message"), REFUSED)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        LlmJudge(**settings)


def test_importing_it_is_cheap():
    code = (
        "import sys, rltune.judge.client, rltune.judge.scripted_server;"
        "print(sorted({'openai', 'httpx', 'torch', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_client_library(key, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InputError) as caught:
        LlmJudge(api_key_env="JUDGE_KEY").require_ready()
    assert str(caught.value) == (
        "attribution.llm: the judge needs the openai package, which is not installed. Run `pip "
        "install 'rltune[judge]'`, or choose another attribution.judge."
    )
