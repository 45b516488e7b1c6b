"""The judge answers while the batch is scored; what it is asked, and what comes of it, is equal."""

import threading
from contextlib import contextmanager
from functools import partial

import pytest
from credit_cases import lasting, make_trial
from patience import wait_until

import rltune.trainer.step as training_step
import rltune.trainer.update_step as update_steps
from rltune.judge.scripted_server import ScriptedServer


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("TRIAL_JUDGE_KEY", "sk-secret-abcdef")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.stopping.set()
        server.shutdown()
        thread.join()


def trial_at(folder, server, **sections):
    llm = {"base_url": server.url, "api_key_env": "TRIAL_JUDGE_KEY"}
    sections = {"gate": {"every": 9, "tasks": 2}, "budget": {"steps": 2}, **sections}
    attribution = {"kind": "adca", "judge": "llm", "llm": llm}
    return make_trial(folder, "multihop_qa", attribution=attribution, **sections)


def test_scoring_may_wait_for_the_judge(server, tmp_path, monkeypatch):
    """It waits until its step was judged: asked after it, the judge never would be."""
    score, asked = update_steps.score_batch, [0]

    def scored(*args, **kwargs):
        wait_until(lambda: server.n_requests > asked[-1] and not server.in_flight)
        asked.append(server.n_requests)
        return score(*args, **kwargs)

    monkeypatch.setattr(update_steps, "score_batch", scored)
    trial = trial_at(tmp_path / "t", server)
    trial.run()
    assert len(asked) == 3
    assert [row["adca/judged_rate"] for row in trial.rows[1:]] == [1, 1]


@contextmanager
def asked_by_credit(judge, *_, step, timed):
    with timed("judge"):
        yield partial(judge.ask, step=step)


def test_a_head_start_changes_no_number(server, tmp_path, monkeypatch):
    early, late = trial_at(tmp_path / "early", server), trial_at(tmp_path / "late", server)
    early.run()
    monkeypatch.setattr(training_step, "asking", asked_by_credit)
    late.run()
    assert list(map(lasting, early.rows)) == list(map(lasting, late.rows))
    assert server.n_requests == 2 * sum(row.get("adca/judge_calls", 0) for row in late.rows)


def test_an_error_of_scoring_ends_the_calls(server, tmp_path, monkeypatch):
    """The trial's own error comes at once, though the judge would answer in minutes."""
    server.delay_s = 600.0

    def failing(*_, **__):
        wait_until(lambda: server.n_requests)
        raise ZeroDivisionError("scored")

    monkeypatch.setattr(update_steps, "score_batch", failing)
    with pytest.raises(ZeroDivisionError, match="scored"):
        trial_at(tmp_path / "t", server).run()
