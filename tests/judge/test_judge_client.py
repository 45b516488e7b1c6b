"""The judge against a real server process: what it answers, how it fails, what it may spend."""

import asyncio

import pytest
from judge_requests import GOOD, make_request
from patience import HANG_S, wait_until

from rltune.judge.budget import Usage, usage_in
from rltune.judge.client import LlmJudge
from rltune.judge.prompt import JudgeRequest
from rltune.judge.verdicts import Verdict, VerdictStatus

JUDGED = Verdict(VerdictStatus.JUDGED, GOOD)


def outcomes(asked):
    return [record["outcome"] for record in asked.log]


def test_one_call_per_trajectory_and_results_in_order(ask):
    lost = JudgeRequest("t", (("a", "x"), ("b", "")), -1.0, False)
    requests = [make_request("a"), lost, make_request("b")]
    asked = ask(requests=requests, delay_s=0.05)
    assert asked.result.verdicts == (JUDGED, Verdict(VerdictStatus.JUDGED, (True, False)), JUDGED)
    assert asked.server.stats()["requests"] == 3
    assert asked.result.usage == usage_in(asked.log)
    assert asked.result.usage.calls == 3
    assert asked.result.metrics["adca/judge_judged_rate"] == 1
    assert asked.result.metrics["adca/judge_calls"] == 3
    assert asked.result.metrics["adca/judge_tokens"] == asked.result.usage.tokens > 0
    assert asked.result.metrics["timing_s/judge_call"] >= 0.05


def test_a_record_per_call(ask):
    (record,) = ask(delay_s=0.05).log
    latency_s, tokens = record.pop("latency_s"), record.pop("tokens")
    assert len(record.pop("digest")) == 64
    assert 0.05 <= latency_s < 10
    assert 100 < tokens < 500  # the server counts words
    assert record == {
        "request": 0,
        "ask": 0,
        "try": 1,
        "outcome": "reply",
        "calls": 1,
        "is_cut": False,
        "reply": '{"verdicts": [{"step": 0, "verdict": "GOOD"}, {"step": 1, "verdict": "BAD"}, '
        '{"step": 2, "verdict": "GOOD"}]}',
        "detail": "",
    }


def test_equal_trajectories_are_asked_once(ask):
    asked = ask(requests=[make_request("a"), make_request("b"), make_request("a")])
    assert asked.result.verdicts == (JUDGED,) * 3
    assert [record["request"] for record in asked.log] == [0, 1]


def test_without_turns_nothing_is_asked(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    empty = JudgeRequest("t", (), 0.0, False)
    result = LlmJudge().judge([empty, empty], usage=Usage(3, 4))
    assert result.verdicts == (Verdict(VerdictStatus.JUDGED, ()),) * 2
    assert result.usage == Usage(3, 4)
    assert LlmJudge().judge([]).verdicts == ()


def test_a_trajectory_without_turns_among_others(ask):
    asked = ask(requests=[JudgeRequest("t", (), 0.0, False), make_request()])
    assert asked.result.verdicts == (Verdict(VerdictStatus.JUDGED, ()), JUDGED)
    assert asked.server.stats()["requests"] == 1


@pytest.mark.parametrize("style", ["one_based", "fenced", "bold", "lines", "no_usage"])
def test_styles_of_replies(ask, style):
    asked = ask(style)
    assert asked.result.verdicts == (JUDGED,)
    assert outcomes(asked) == ["reply"]


@pytest.mark.parametrize("bad", ["words", "partial", "empty", "cut"])
def test_an_unreadable_reply_is_asked_once_more(ask, bad):
    asked = ask(bad)
    assert asked.result.verdicts == (JUDGED,)
    assert [(record["ask"], record["try"]) for record in asked.log] == [(0, 1), (1, 1)]


UNREADABLE = [
    ("words", 'there is no JSON object with "verdicts"'),
    ("partial", "it judges steps 0, 1; there are steps 0 to 2"),
    ("empty", "it is empty"),
    ("cut", 'there is no JSON object with "verdicts"; it was cut off after 77 tokens'),
]


@pytest.mark.parametrize(("bad", "detail"), UNREADABLE)
def test_two_unreadable_replies_are_a_parse_failure_and_no_guess(ask, bad, detail):
    asked = ask(f"{bad}*2", max_reply_tokens=77)
    assert asked.result.verdicts == (Verdict(VerdictStatus.PARSE_FAILURE, None, detail),)
    assert asked.server.stats()["requests"] == 2
    assert asked.result.metrics["adca/judge_parse_failure_rate"] == 1


FAULTS = [
    ("429", "http_429"),
    ("500", "http_500"),
    ("503", "http_503"),
    ("drop", "connection"),
    ("garbage", "no_completion"),
    pytest.param("hang", "timeout", marks=pytest.mark.slow),
    pytest.param("drip", "timeout", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("fault", "outcome"), FAULTS)
def test_a_failure_that_passes_is_tried_again(ask, fault, outcome):
    if outcome == "timeout":
        ask()  # at its first call the library imports parts of itself, within the time of a try
    asked = ask(fault, timeout_s=1.0 if outcome == "timeout" else 10.0)
    assert asked.result.verdicts == (JUDGED,)
    assert outcomes(asked) == [outcome, "reply"]
    assert [record["try"] for record in asked.log] == [1, 2]


def test_everything_at_once(ask):
    faults = "429*2,garbage,500,words,drop,503,partial,429,empty"
    asked = ask(faults, requests=[make_request(name) for name in "abcdefgh"], max_retries=9)
    statuses = {verdict.status for verdict in asked.result.verdicts}
    assert statuses <= {VerdictStatus.JUDGED, VerdictStatus.PARSE_FAILURE}
    flags = {verdict.flags for verdict in asked.result.verdicts}
    assert flags <= {GOOD, None}
    assert asked.server.stats()["requests"] == asked.result.usage.calls == len(asked.log)


def test_tries_come_to_an_end(ask):
    asked = ask("500*9", max_retries=2)
    (verdict,) = asked.result.verdicts
    assert (verdict.status, verdict.flags) == (VerdictStatus.NO_ANSWER, None)
    assert verdict.detail.startswith("after 3 tries: it answered HTTP 500: {")
    assert asked.server.stats()["requests"] == 3


def test_no_try_but_the_first(ask):
    assert ask("500", max_retries=0).result.verdicts[0].detail.startswith("after 1 try: it answ")


def test_nobody_listens_and_that_costs_nothing(key):
    judge = LlmJudge(
        base_url="http://127.0.0.1:9/v1", api_key_env="JUDGE_KEY", max_retries=1, backoff_s=0.0,
        max_calls=1,
    )  # fmt: skip
    result = judge.judge([make_request()])
    detail = "after 2 tries: ConnectError: All connection attempts failed"
    assert result.verdicts == (Verdict(VerdictStatus.NO_ANSWER, None, detail),)
    assert result.usage == Usage(calls=0, tokens=0)
    assert result.metrics["adca/judge_calls"] == 0


@pytest.mark.parametrize("status", ["401", "404"])
def test_a_refusal_of_everything_is_not_repeated(ask, status):
    requests = [make_request(name) for name in "abcd"]
    asked = ask(f"{status}*9", requests=requests, max_concurrency=1)
    assert {verdict.status for verdict in asked.result.verdicts} == {VerdictStatus.REFUSED}
    assert asked.server.stats()["requests"] == 1


def test_a_refused_request_leaves_the_others_alone(ask):
    requests = [make_request(name) for name in "abc"]
    asked = ask("400", requests=requests, max_concurrency=1)
    statuses = [verdict.status.value for verdict in asked.result.verdicts]
    assert statuses == ["rejected", "judged", "judged"]
    assert asked.result.usage.calls == 3  # what was answered counts, whatever the answer


def test_text_that_no_request_can_hold_is_judged_all_the_same(ask):
    odd = JudgeRequest("t", (("go \ud800", "room \udfff"), ("wait", "")), 1.0, True)
    asked = ask(requests=[odd, make_request()])
    assert {verdict.status for verdict in asked.result.verdicts} == {VerdictStatus.JUDGED}


@pytest.mark.parametrize("url", ["http://h:99999/v1", "http://a..b/v1"])
def test_an_address_that_no_client_takes_is_a_status(key, url):
    """As if it had passed our own checks: whatever the client library raises is data."""
    judge = LlmJudge(api_key_env="JUDGE_KEY", max_retries=0, timeout_s=5.0)
    object.__setattr__(judge, "base_url", url)
    verdicts = judge.judge([make_request("a"), make_request("b")]).verdicts
    assert {verdict.status.value for verdict in verdicts} <= {"unsendable", "no_answer"}
    assert len(verdicts) == 2


def test_what_the_client_library_raises_is_a_status(key, monkeypatch):
    def broken(*_, **__):
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    monkeypatch.setattr("openai._base_client.AsyncAPIClient._build_request", broken)
    log = []
    judge = LlmJudge(api_key_env="JUDGE_KEY", base_url="http://127.0.0.1:9/v1")
    result = judge.judge([make_request()], log=log.append)
    assert result.verdicts[0].status is VerdictStatus.UNSENDABLE
    assert result.usage == Usage()
    assert [(one["outcome"], one["calls"]) for one in log] == [("unsendable", 0)]


def test_the_environment_does_not_move_the_address(ask, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert ask().result.verdicts == (JUDGED,)
    assert LlmJudge().base_url == "https://api.openai.com/v1"


def test_logged_replies_are_used_without_a_call(ask):
    """Readable or not; a failed try before a reply counts, and a failure alone is asked again."""
    requests = [make_request(name) for name in "abcd"]
    # a is judged at once, b is unreadable twice, c fails and is judged, d fails for good.
    faults = "ok,words,words,500,ok,500,500"
    first = ask(faults, requests=requests, max_concurrency=1, max_retries=1, backoff_s=0.0)
    again = LlmJudge(base_url=first.server.url, api_key_env="JUDGE_KEY", max_concurrency=1)
    before = first.server.stats()["requests"]
    log = []
    result = again.judge(requests, usage=first.result.usage, log=log.append, logged=first.log)
    unjudged = [i for i, one in enumerate(first.result.verdicts) if one.status == "no_answer"]
    replayed = [i for i in range(4) if i not in unjudged]
    assert [result.verdicts[i] for i in replayed] == [first.result.verdicts[i] for i in replayed]
    assert first.server.stats()["requests"] == before + len(unjudged)
    assert {record["request"] for record in log} == set(unjudged)
    assert result.usage == usage_in([*first.log, *log])
    assert result.metrics["adca/judge_calls"] == result.usage.calls


def test_a_reply_of_other_settings_is_no_reply(ask):
    first = ask()
    for settings in ({"model": "other"}, {"temperature": 0.5}, {"max_reply_tokens": 99}):
        judge = LlmJudge(base_url=first.server.url, api_key_env="JUDGE_KEY", **settings)
        before = first.server.stats()["requests"]
        judge.judge([make_request()], logged=first.log)
        assert first.server.stats()["requests"] == before + 1


def test_concurrency_is_bounded_and_used(ask):
    requests = [make_request(name) for name in "abcdefgh"]
    asked = ask(requests=requests, max_concurrency=3, delay_s=0.1)
    assert asked.server.stats()["max_in_flight"] == 3


@pytest.mark.slow
def test_a_wait_holds_no_slot(ask):
    """With one slot, the others are served while the first waits for its second try."""
    requests = [make_request(name) for name in "abc"]
    asked = ask("429", requests=requests, max_concurrency=1, backoff_s=3.0)
    assert asked.result.verdicts == (JUDGED,) * 3
    assert asked.sent == [0, 1, 2, 0]


def test_the_service_may_ask_for_a_longer_wait_up_to_a_limit(ask):
    """It asks for an hour."""
    asked = ask("429_wait", max_backoff_s=0.3, deadline_s=60.0)
    assert asked.result.verdicts == (JUDGED,)
    first, second = asked.server.stats()["arrivals_s"]
    assert second - first >= 0.3


@pytest.mark.slow
def test_the_deadline_holds_for_all(ask, serve):
    """One is known already, one hangs, one is not sent."""
    known = ask()
    server = serve("hang*9")
    settings = {"max_concurrency": 1, "deadline_s": 1.0, "timeout_s": HANG_S}
    judge = LlmJudge(base_url=server.url, api_key_env="JUDGE_KEY", **settings)
    requests = [make_request(), make_request("b"), make_request("c")]
    log = []
    result = judge.judge(requests, logged=known.log, log=log.append)
    late = Verdict(VerdictStatus.DEADLINE, None, "not judged within 1 s")
    assert result.verdicts == (JUDGED, late, late)
    assert [record["outcome"] for record in log] == ["cut_off"]
    assert log[0]["tokens"] > 1024  # the most it could have cost
    assert result.usage == usage_in(log)


def test_the_limit_of_calls_is_hard(ask):
    requests = [make_request(name) for name in "abcdef"]
    asked = ask("429", requests=requests, usage=Usage(calls=1), max_calls=4, max_concurrency=2)
    assert asked.server.stats()["requests"] == 3
    assert asked.result.usage.calls == 4
    statuses = [verdict.status for verdict in asked.result.verdicts]
    assert statuses.count(VerdictStatus.JUDGED) == 2
    assert statuses.count(VerdictStatus.BUDGET) == 4
    over = next(one for one in asked.result.verdicts if one.status is VerdictStatus.BUDGET)
    assert over.detail == "4 calls are used up; raise attribution.llm.max_calls"


def test_the_limit_of_tokens_is_hard(ask):
    requests = [make_request(name) for name in "abcdef"]
    asked = ask(requests=requests, max_tokens=3000, max_concurrency=4, delay_s=0.05)
    assert asked.result.usage.tokens <= 3000
    statuses = [verdict.status for verdict in asked.result.verdicts]
    assert 0 < statuses.count(VerdictStatus.JUDGED) < 6
    assert set(statuses) == {VerdictStatus.JUDGED, VerdictStatus.BUDGET}
    # Each call may take over 2000 and takes about 240: they went one after the other.
    assert asked.server.stats()["max_in_flight"] == 1


def test_within_a_running_loop(serve):
    server = serve()

    async def notebook():
        return LlmJudge(base_url=server.url, api_key_env="JUDGE_KEY").judge([make_request()])

    assert asyncio.run(notebook()).verdicts == (JUDGED,)


def judge_at(server, **settings):
    settings = {"backoff_s": 0.01, "timeout_s": HANG_S, "deadline_s": HANG_S, **settings}
    return LlmJudge(base_url=server.url, api_key_env="JUDGE_KEY", **settings)


def test_calls_are_under_way_while_the_caller_does_something_else(serve):
    server = serve()
    requests = [make_request("a"), make_request("b")]
    log = []
    with judge_at(server).asking(requests, log=log.append) as answer:
        wait_until(lambda: len(log) == 2)
        result = answer()
    assert result.verdicts == (JUDGED, JUDGED)
    assert result.usage == usage_in(log)


def test_who_leaves_early_cuts_the_calls_off_and_finds_them_in_the_log(serve):
    server = serve(delay_s=HANG_S)
    log = []
    with judge_at(server).asking([make_request()], log=log.append):
        wait_until(lambda: server.stats()["requests"])
    assert [(record["outcome"], record["calls"]) for record in log] == [("cut_off", 1)]
