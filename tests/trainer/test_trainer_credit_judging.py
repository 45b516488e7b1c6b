"""The language-model judge of a trial, against a scripted server."""

import os
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from credit_cases import config_of, make_episode, make_trial, make_turn
from judge_server import judge_server
from killing import Killed

from rltune.errors import InputError, TrialError
from rltune.spec.schema.attribution import JudgeConfig
from rltune.store.digest import metrics_digest
from rltune.store.jsonl import read_jsonl
from rltune.store.rundir import TrialDir
from rltune.trainer.credit.judging import TrialJudge, make_judge

KEY = "sk-secret-abcdef-0123456789"


@pytest.fixture
def serve(monkeypatch):
    """Start scripted servers that want the key, and stop them."""
    monkeypatch.setenv("TRIAL_JUDGE_KEY", KEY)
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with ExitStack() as servers:
        yield lambda *faults: servers.enter_context(judge_server(*faults, key=KEY))


def judge_of(server, folder, warn=lambda _: None, **settings):
    settings = {"max_retries": 0, "max_concurrency": 1, "timeout_s": 10.0, **settings}
    config = JudgeConfig(base_url=server.url, api_key_env="TRIAL_JUDGE_KEY", **settings)
    return TrialJudge(config, folder, system_prompt="Find the door.", seed=0, warn=warn)


def walked(*seen, success=False):
    """Write an episode by what was seen before each turn."""
    turns = [make_turn([2], observation=one, response=f"go {i}") for i, one in enumerate(seen)]
    return make_episode(turns, success=success, reward=float(success))


# The server calls a turn GOOD when what followed it is new; the last by the episode's success.
THREE = [
    walked("hall", "room", "room", "attic", success=True),  # seen after: room, room, attic, -
    walked("hall"),
    walked("cellar", "shaft", success=True),
]
FLAGS = [(True, False, True, True), (False,), (True, True)]


@pytest.fixture
def folder(tmp_path):
    return TrialDir(tmp_path / "trial").create()


def logged(folder):
    return read_jsonl(folder.judge_log).rows


def test_verdicts_are_flags_and_every_call_is_logged(serve, folder):
    server = serve()
    judged = judge_of(server, folder).ask(THREE, step=7)
    assert judged.flags == FLAGS
    assert judged.metrics["adca/judge_calls"] == 3
    assert judged.metrics["adca/judge_judged_rate"] == 1
    records = logged(folder)
    assert [record["step"] for record in records] == [7] * 3
    assert [record["request"] for record in records] == [0, 1, 2]
    assert {record["outcome"] for record in records} == {"reply"}
    assert all("verdicts" in record["reply"] for record in records)
    assert judged.metrics["adca/judge_tokens"] == sum(record["tokens"] for record in records) > 0


def test_what_fails_is_not_judged_and_counted(serve, folder):
    # Two that cannot be read and an error; then those two again, of which one can be read.
    server = serve("words*2,500,words,ok")
    judged = judge_of(server, folder).ask(THREE, step=1)
    assert judged.flags == [None, FLAGS[1], None]
    rates = {k: v for k, v in judged.metrics.items() if k.endswith("_rate")}
    assert rates["adca/judge_judged_rate"] == pytest.approx(1 / 3)
    assert rates["adca/judge_parse_failure_rate"] == pytest.approx(1 / 3)
    assert sum(rates.values()) == pytest.approx(1)
    assert judged.metrics["adca/judge_calls"] == 5
    assert len(logged(folder)) == 5


def test_the_budget_is_of_the_trial_and_not_of_the_process(serve, folder):
    server = serve()
    first = judge_of(server, folder, max_calls=4)
    assert first.ask(THREE, step=1).flags == FLAGS
    again = judge_of(server, folder, max_calls=4)  # as after a kill: nothing was handed over
    others = [walked("pit"), walked("roof"), walked("lane")]
    judged = again.ask(others, step=2)
    assert judged.flags == [(False,), None, None]
    assert judged.metrics["adca/judge_budget_rate"] == pytest.approx(2 / 3)
    assert server.stats()["requests"] == 4
    assert again.ask(others, step=3).flags == [None] * 3
    assert (server.stats()["requests"], len(logged(folder))) == (4, 4)


def test_the_budget_of_tokens_too(serve, folder):
    server = serve()
    judge_of(server, folder).ask(THREE, step=1)
    spent = sum(record["tokens"] for record in logged(folder))
    judged = judge_of(server, folder, max_tokens=spent + 10).ask([walked("pit")], step=2)
    assert judged.flags == [None]
    assert server.stats()["requests"] == 3


def test_a_torn_last_line_of_the_log_does_no_harm(serve, folder):
    server = serve()
    judge_of(server, folder).ask(THREE, step=1)
    with folder.judge_log.open("ab") as file:
        file.write(b'{"step": 1, "tok')
    assert judge_of(server, folder, max_calls=4).ask([walked("pit")], step=2).flags == [(False,)]
    assert [record["step"] for record in logged(folder)] == [1, 1, 1, 2]


def test_episodes_of_no_turns_are_judged_without_a_call(serve, folder):
    server = serve()
    assert judge_of(server, folder).ask([make_episode([])], step=1).flags == [()]
    assert server.stats()["requests"] == 0


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_key_there_is_one_clear_error(monkeypatch, tmp_path, value):
    monkeypatch.delenv("TRIAL_JUDGE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TRIAL_JUDGE_KEY", value)
    llm = {"api_key_env": "TRIAL_JUDGE_KEY"}
    trial = make_trial(tmp_path / "t", attribution={"kind": "adca", "judge": "llm", "llm": llm})
    with pytest.raises(InputError) as caught:
        trial.run()
    assert str(caught.value) == (
        "attribution.llm.api_key_env: the environment variable 'TRIAL_JUDGE_KEY' is not set. Set "
        "it to the key, or to any text for a service that needs none."
    )
    assert not trial.folder.metrics.exists()  # said before anything was done


def test_other_judges_need_no_key():
    for attribution in ({"kind": "none"}, {"kind": "adca", "judge": "solver"}):
        job = SimpleNamespace(config=config_of(attribution=attribution))
        assert make_judge(job) is None


@pytest.mark.slow
def test_a_trial_with_a_judge_killed_and_resumed(serve, tmp_path):
    server = serve("ok*2,500,429")
    llm = {
        "base_url": server.url, "api_key_env": "TRIAL_JUDGE_KEY", "max_retries": 0,
        "max_concurrency": 2, "max_calls": 40,
    }  # fmt: skip
    sections = {
        "attribution": {"kind": "adca", "judge": "llm", "llm": llm, "first_steps": 2},
        "budget": {"steps": 3},
        "gate": {"every": 9, "tasks": 2},
        "checkpoint": {"every": 9},
    }
    trial = make_trial(tmp_path / "t", "multihop_qa", **sections)
    with pytest.raises(Killed):
        trial.run(die_at=1)
    before = server.stats()["requests"]
    assert len(logged(trial.folder)) == before > 0
    trial.run()
    records = logged(trial.folder)
    assert len(records) == server.stats()["requests"]
    assert {record["step"] for record in records} == {1, 2}
    assert [record["step"] for record in records[:before]] == [1] * before
    rows = trial.rows[1:]
    assert [row["adca/asked_count"] for row in rows] == [8, 8, 0]
    assert rows[1]["adca/judged_rate"] == 1
    assert [row["adca/answered_count"] for row in rows[1:]] == [8, 0]
    assert "timing_s/judge" in rows[0]
    # Step 1 was made twice and paid for once, its two failures aside, which were asked again.
    assert sum(row.get("adca/judge_calls", 0) for row in rows) == len(records)
    assert records[before]["step"] == 1
    assert [one["step"] for one in records].count(1) == before + 2
    for path in trial.folder.path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_a_resumed_trial_is_bit_equal_and_asks_nothing_twice(serve, tmp_path):
    """Also where the service would say something else the second time."""
    sections = {"budget": {"steps": 2}, "gate": {"every": 9, "tasks": 2}}
    sections |= {"checkpoint": {"every": 9}}

    def trial_at(name, server):
        llm = {"base_url": server.url, "api_key_env": "TRIAL_JUDGE_KEY", "max_concurrency": 1}
        attribution = {"kind": "adca", "judge": "llm", "llm": {**llm, "max_calls": 14}}
        return make_trial(tmp_path / name, "multihop_qa", attribution=attribution, **sections)

    faults = "ok*3,words*2,ok*2,one_based"
    whole = trial_at("whole", serve(faults))
    whole.run()
    server = serve(faults)
    killed = trial_at("killed", server)
    with pytest.raises(Killed):
        killed.run(die_at=1)
    asked = server.stats()["requests"]
    killed.run()
    assert (
        server.stats()["requests"] == len(logged(killed.folder)) == len(logged(whole.folder)) <= 14
    )
    assert asked < server.stats()["requests"]
    assert metrics_digest(killed.folder.metrics) == metrics_digest(whole.folder.metrics)


def many(n, step):
    return [walked(f"hall {step} {i}") for i in range(n)]


def test_requests_that_are_rejected_do_not_end_the_trial(serve, folder):
    server = serve("400*2,ok*9")
    judge = judge_of(server, folder)
    judged = judge.ask(many(2, 1), step=1)
    assert judged.flags == [None, None]
    assert judged.metrics["adca/judge_rejected_rate"] == 1
    assert judge.ask(many(2, 2), step=2).flags == [(False,)] * 2


@pytest.mark.parametrize("status", ["401", "404"])
def test_a_wrong_key_or_model_ends_the_trial_at_once(serve, folder, status):
    judge = judge_of(serve(f"{status}*9"), folder)
    with pytest.raises(TrialError, match=r"^the judge refused every request: it answered HTTP 4"):
        judge.ask(many(3, 1), step=1)


def test_a_judge_that_is_down_from_the_start_ends_the_trial(folder, serve):
    down = SimpleNamespace(url="http://127.0.0.1:9/v1")
    warned = []
    judge = judge_of(down, folder, warned.append)
    assert judge.ask(many(2, 1), step=1).flags == [None, None]
    assert judge.ask([make_episode([])], step=2).flags == [()]  # nothing was to be judged
    assert judge.ask(many(2, 3), step=3).flags == [None, None]
    with pytest.raises(TrialError) as caught:
        judge.ask(many(2, 4), step=4)
    assert str(caught.value) == (
        "the judge gave no verdict in the first 3 steps that asked it (1, 3, 4): no_answer 2; the "
        "last: after 1 try: ConnectError: All connection attempts failed. Repair the service, or "
        "attribution.llm; the same command then goes on"
    )
    assert warned == [
        "step 1: 2 of 2 episodes asked about were not judged: no_answer 2; the last: after 1 try: "
        "ConnectError: All connection attempts failed (warned once: adca/judge_* counts these and "
        "later ones, which keep their outcome)"
    ]
    assert {record["calls"] for record in logged(folder)} == {0}


def test_an_outage_after_a_verdict_does_not_end_the_trial(serve, folder):
    judge = judge_of(serve("ok,500*9"), folder)
    assert judge.ask(many(1, 1), step=1).flags == [(False,)]
    for step in range(2, 8):
        assert judge.ask(many(1, step), step=step).flags == [None]


def test_a_trial_that_goes_on_with_a_spent_budget_goes_on_to_its_end(serve, folder):
    server = serve()
    assert judge_of(server, folder, max_calls=2).ask(many(2, 1), step=1).flags == [(False,)] * 2
    warned = []  # as after a kill with a checkpoint at step 1:
    again = judge_of(server, folder, warned.append, max_calls=2)
    for step in range(2, 8):
        assert again.ask(many(2, step), step=step).flags == [None] * 2
    assert warned == [
        "step 2: 2 of 2 episodes asked about were not judged, and few or none will be from here "
        "on: 2 calls are used up; raise attribution.llm.max_calls"
    ]


def test_a_budget_that_never_allowed_a_call_ends_the_trial(serve, folder):
    judge = judge_of(serve(), folder, max_tokens=1)
    for step in (1, 2):
        assert judge.ask(many(2, step), step=step).flags == [None] * 2
    with pytest.raises(TrialError, match=r"first 3 steps that asked it \(1, 2, 3\): budget 2"):
        judge.ask(many(2, 3), step=3)


def test_the_end_of_the_budget_is_said_once(serve, folder):
    warned = []
    judge = judge_of(serve(), folder, warned.append, max_calls=3)
    for step in (1, 2, 3):
        judge.ask(many(2, step), step=step)
    assert warned == [
        "step 2: 1 of 2 episodes asked about were not judged, and few or none will be from here "
        "on: 3 calls are used up; raise attribution.llm.max_calls"
    ]


def test_no_key_is_wanted_where_no_verdict_has_weight(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    sections = {"budget": {"steps": 1}, "gate": {"every": 9, "tasks": 2}}
    attribution = {"kind": "adca", "judge": "llm", "alpha": 0.0}
    make_trial(tmp_path / "t", "multihop_qa", attribution=attribution, **sections).run()
