"""What is chosen without a cluster; test_runner_two_nodes asks real ones."""

import subprocess
from types import SimpleNamespace

import pytest

from rltune.errors import ResourceError
from rltune.runner import cluster_auth
from rltune.runner.cluster_auth import choose_auth_mode, find_token


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("os.environ", {"HOME": str(tmp_path)})
    (tmp_path / ".ray").mkdir()
    return tmp_path


def test_a_token_is_looked_for_where_ray_does_and_in_its_order(home, monkeypatch):
    default, named = home / ".ray" / "auth_token", home / "named"
    assert find_token() == (str(default), False)
    default.write_text(" \n")
    assert find_token() == (str(default), False)
    default.write_text("abc\n")
    assert find_token() == (str(default), True)
    monkeypatch.setitem(cluster_auth.os.environ, "RAY_AUTH_TOKEN_PATH", str(named))
    assert find_token() == (str(named), False)  # Ray looks no further
    named.write_text("abc")
    assert find_token() == (str(named), True)
    monkeypatch.setitem(cluster_auth.os.environ, "RAY_AUTH_TOKEN", "abc")
    assert find_token() == ("RAY_AUTH_TOKEN", True)


@pytest.mark.parametrize(
    ("answer", "given", "message"),
    [
        ((0, ""), "token", r"RAY_AUTH_MODE: it is 'token', and .* h:1 uses no token\. Unset it\."),
        ((1, "\nValueError: no.\n"), None, r"^--ray-address: 'h:1' cannot be used: ValueError: no"),
        ((3, ""), None, r"'h:1' cannot be used: exit code 3\. Check the address with `ray status`"),
    ],
)
def test_what_cannot_work_is_refused_before_ray_tries(home, monkeypatch, answer, given, message):
    if given is not None:
        monkeypatch.setitem(cluster_auth.os.environ, "RAY_AUTH_MODE", given)
    done = SimpleNamespace(returncode=answer[0], stderr=answer[1])
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(ResourceError, match=message):
        choose_auth_mode("h:1")


def test_an_address_that_never_answers_is_given_up(home, monkeypatch):
    def wait(command, *, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", wait)
    with pytest.raises(ResourceError, match=r"'h:1' cannot be used: no answer within 120 s\."):
        choose_auth_mode("h:1")


@pytest.mark.parametrize(("address", "mode"), [("h:1", "kubernetes"), ("ray://h:10001", "token")])
def test_what_we_do_not_know_is_left_to_ray(home, monkeypatch, address, mode):
    monkeypatch.setitem(cluster_auth.os.environ, "RAY_AUTH_MODE", mode)
    monkeypatch.setattr(subprocess, "run", None)
    choose_auth_mode(address)
    assert cluster_auth.os.environ["RAY_AUTH_MODE"] == mode


@pytest.mark.slow
def test_ray_itself_says_what_is_wrong_with_an_address():
    with pytest.raises(ResourceError, match=r"'rubbish' cannot be used: ValueError: Invalid addr"):
        choose_auth_mode("rubbish")
