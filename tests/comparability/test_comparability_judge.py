"""The language-model judge in a config: no key is ever shown, and its budget is looked at."""

import pytest
from pydantic import ValidationError

from rltune.comparability.check import check_sweep
from rltune.comparability.judge_budget import JudgeNeed, judge_need
from rltune.comparability.judged import (
    Judged,
    judged_by_condition,
    judged_in,
    judged_line,
    unjudged_line,
)
from rltune.errors import SpecError
from rltune.spec.judge_names import address_fault
from rltune.spec.schema.attribution import JudgeConfig
from rltune.spec.schema.trial import TrialConfig

NONE = "  attribution.kind: none"
LLM = (NONE, "  attribution.kind: adca\n  attribution.judge: llm\n  advantage.kind: grpo")
SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize("url", [
    "https://api.openai.com/v1", "http://127.0.0.1:8801/v1", "http://[::1]:80", "http://my_host/v1",
])  # fmt: skip
def test_addresses(url):
    assert JudgeConfig(base_url=url).base_url == url


@pytest.mark.parametrize(("url", "fault"), [
    (f"https://me:{SECRET}@host/v1", "a user name or password"),
    (f"https://{SECRET}@host/v1", "a user name or password"),
    (f"https://host/v1?api_key={SECRET}", "a query or fragment"),
    (f"https://host/v1#{SECRET}", "a query or fragment"),
    (f"host/{SECRET}", "does not begin with http"),
    (f"ftp://host/{SECRET}", "does not begin with http"),
    (f"http:host/{SECRET}", "does not begin with http"),
    (f"http://host:99999/{SECRET}", "port"),
    (f"http://host:0/{SECRET}", "port"),
    (f"http://host:/{SECRET}", "port"),
    (f"http://host:{SECRET}/v1", "port"),
    (f"http:///{SECRET}", "no host"),
    (f"http://a..b/{SECRET}", "host cannot be read"),
    (f"http://[zz]/{SECRET}", "host cannot be read"),
    (f"http://host /{SECRET}", "spaces"),
])  # fmt: skip
def test_no_address_is_repeated(url, fault, load):
    assert fault in address_fault(url)
    with pytest.raises(SpecError) as caught:
        load(LLM, overrides=[f"attribution.llm.base_url={url!r}"])
    assert fault in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        JudgeConfig(base_url=url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", [SECRET, f"[{SECRET}]", "OPENAI_key", "1A"])
def test_a_pasted_key_is_not_repeated(value, load):
    held = (LLM[0], f"{LLM[1]}\n  attribution.llm.api_key_env: {value}")
    for change, overrides in ((held, []), (LLM, [f"attribution.llm.api_key_env={value}"])):
        with pytest.raises(SpecError) as caught:
            load(change, overrides=overrides)
        assert str(caught.value).endswith(
            "attribution.llm.api_key_env: this is not the name of an environment variable. Give "
            "the name, in capitals, digits and underscores, such as OPENAI_API_KEY, and put the "
            "key into that variable."
        )
        assert value not in str(caught.value)


def test_a_key_under_a_name_that_is_no_key_of_ours(load):
    with pytest.raises(SpecError) as caught:
        load(LLM, overrides=[f"attribution.llm.api_key={SECRET}"])
    assert "'attribution.llm.api_key' is not a config key" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_an_address_must_be_given_in_words():
    with pytest.raises(ValidationError):
        JudgeConfig(base_url=None)


def test_a_key_of_another_attribution_says_whose_it_is(load):
    with pytest.raises(SpecError) as caught:
        load(overrides=["attribution.judge=solver"])
    assert str(caught.value) == (
        "--set attribution.judge=solver: attribution.judge: 'judge' belongs to attribution.kind "
        "adca; the kind is none here. Set attribution.kind: adca, or remove 'judge'. "
        "Did you mean 'attribution: {kind: none}'?"
    )


def test_a_judge_that_nobody_asks_is_named(load):
    solver = (LLM[0], LLM[1].replace("llm", "solver"))
    for overrides, said in (([], []), (["attribution.llm.max_calls=5"], ["S8.judge_idle"])):
        found = check_sweep(load(solver, overrides=overrides)).warnings
        assert [one.code for one in found if "judge" in one.code] == said


def need(steps=10, **attribution):
    return judge_need(
        TrialConfig(
            policy={"model": "x"},
            advantage={"kind": "grpo"},
            attribution={"kind": "adca", "judge": "llm", **attribution},
            rollout={"groups": 4, "group_size": 5},
            optim={"mini_batch_size": 20},
            collapse={"prompts": 4},
            budget={"steps": steps},
        )
    )


def test_what_a_trial_asks():
    # 20 episodes a step; 10 steps ask about 200. 2,000 calls are enough, and 2,000,000 tokens too.
    assert need() == JudgeNeed(200, 10, None, "max_calls")
    assert need(first_steps=3).calls == 60
    assert need(alpha_schedule="cosine", alpha_steps=4).calls == 80
    assert need(alpha_schedule="cosine", alpha_steps=4, alpha_min=0.1).calls == 200
    assert need(alpha=0.0) is None
    # 110 calls are five whole steps: the sixth is not judged whole.
    assert need(llm={"max_calls": 110}) == JudgeNeed(200, 10, 6, "max_calls")
    assert need(llm={"max_calls": 200}).ends is None
    # 40,000 tokens are four steps of 20 calls with 500 tokens each.
    assert need(llm={"max_tokens": 40_000}) == JudgeNeed(200, 10, 5, "max_tokens")


def test_a_budget_that_ends_early_is_a_hidden_axis(load):
    # 8 groups of 16: 128 a step; 200 steps ask for 25,600. 2,000 calls last for 15 steps.
    small = ["rollout.groups=8", "rollout.group_size=16", "budget.steps=200"]
    report = check_sweep(load(LLM, overrides=small))
    (found,) = [one for one in report.warnings if one.code == "S8.judge_budget"]
    assert "max_calls lasts to step 15 of 200 in " in found.message
    assert "up to 25,600 calls" in found.message
    assert "max_calls to 51,200" in found.remedy


def test_shares_are_over_what_was_asked():
    rows = [
        {"step": 0},
        {"step": 1, "adca/asked_count": 8.0, "adca/answered_count": 6.0},
        {"step": 2, "adca/asked_count": 0.0, "adca/answered_count": 0.0},
        {"step": 3, "adca/asked_count": 2.0, "adca/answered_count": 2.0},
    ]
    assert judged_in(rows) == Judged(10, 8)
    shares = judged_by_condition([("a", Judged(10, 8)), ("b", Judged(0, 0)), ("a", Judged(10, 4))])
    assert shares == {"a": Judged(20, 12)}
    assert judged_line(shares) == "Episodes judged, of those asked about: a 60.0% of 20."
    assert judged_line({}) == ""


def test_the_trials_with_the_fewest_verdicts_are_named():
    assert unjudged_line([("a", Judged(20, 19)), ("b", Judged(0, 0))]) == ""  # 19 / 20 is 95 %
    assert unjudged_line([("a", Judged(20, 18)), ("b", Judged(2000, 0)), ("c", Judged(1, 1))]) == (
        "Trials judged below 95%: b: 0 of 2,000; a: 18 of 20."
    )
    four = [(name, Judged(10, i)) for i, name in enumerate("dcba")]
    assert unjudged_line(four) == (
        "Trials judged below 95%: d: 0 of 10; c: 1 of 10; b: 2 of 10; 1 more."
    )
