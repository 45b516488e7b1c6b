import json

import pytest
from cases import each

from rltune.judge.verdicts import (
    Verdict,
    VerdictError,
    VerdictStatus,
    parse_verdicts,
    verdict_rates,
)


def listed(*words, first=0):
    return [{"step": k, "verdict": word} for k, word in enumerate(words, first)]


def reply(*words, first=0):
    return json.dumps({"verdicts": listed(*words, first=first)})


GB = (True, False)
READABLE = [
    pytest.param(reply("GOOD", "BAD"), id="as-asked"),
    pytest.param(reply("GOOD", "BAD", first=1), id="from-1"),
    pytest.param(reply("good", "Bad"), id="any-case"),
    pytest.param(reply("**GOOD**", " `BAD`. "), id="bold"),
    pytest.param(f"```json\n{reply('GOOD', 'BAD')}\n```", id="fenced"),
    pytest.param(f"Sure! {{not json}}\n{reply('GOOD', 'BAD')}\nStep 1 was BAD.", id="text-around"),
    pytest.param(json.dumps({"verdicts": listed("GOOD", "BAD")[::-1]}), id="any-order"),
    pytest.param(json.dumps({"result": {"verdicts": listed("GOOD", "BAD")}}), id="inside"),
    pytest.param(
        '{"verdicts": [{"step": "0", "verdict": "GOOD"}, {"step": " 1", "verdict": "BAD"}]}',
        id="digits-as-text",
    ),
    pytest.param(
        '{"verdicts": [{"step": 0, "verdict": "GOOD", "why": "a bad idea"}, '
        '{"step": 1, "why": {"verdict": "GOOD"}, "verdict": "BAD"}]}',
        id="more-keys",
    ),
    pytest.param(reply("GOOD", "BAD") + "\n" + reply("GOOD", "BAD"), id="said-twice"),
    pytest.param(f"<think>{reply('BAD', 'GOOD')}</think>{reply('GOOD', 'BAD')}", id="thought"),
    pytest.param("Step 0 Judgment: GOOD\nStep 1 Judgment: BAD", id="lines"),
    pytest.param("**Step 1 Judgement:** **GOOD**\n- step 2: bad.", id="lines-bold-from-1"),
    pytest.param(
        "Step 0 Analysis: not a bad idea\nStep 0 Verdict: `GOOD`\n\n"
        "Step 1 Analysis: was this GOOD\nno\nStep 1 Verdict: `BAD`",
        id="lines-among-analyses",
    ),
]


@each("text", READABLE)
def test_readable(text):
    assert parse_verdicts(text, n_steps=2) == GB


@pytest.mark.parametrize("first", [0, 1])
def test_one_step(first):
    assert parse_verdicts(reply("BAD", first=first), n_steps=1) == (False,)


NO_OBJECT = 'there is no JSON object with "verdicts"'
UNREADABLE = [
    ("", "it is empty"),
    (" \n", "it is empty"),
    (f"<think>{reply('GOOD', 'BAD')}", "it is empty"),
    ("GOOD BAD", NO_OBJECT),
    ("The first was good, the second bad.", NO_OBJECT),
    ("Step 0 Judgment: GOOD/BAD\nStep 1 Judgment: GOOD/BAD", NO_OBJECT),  # the echoed template
    ("Step 0:\nGOOD", NO_OBJECT),
    (reply("GOOD", "BAD")[:-3], NO_OBJECT),  # cut off
    (json.dumps(listed("GOOD", "BAD")), NO_OBJECT),
    ("Step 0: GOOD", "it judges steps 0; there are steps 0 to 1"),
    ("Step 0: GOOD\nStep 0: BAD\nStep 1: BAD", "it judges steps 0, 0, 1; there are steps 0 to 1"),
    (reply("GOOD"), "it judges steps 0; there are steps 0 to 1"),
    (reply("GOOD", "BAD", "BAD"), "it judges steps 0, 1, 2; there are steps 0 to 1"),
    (reply("GOOD", "BAD", first=2), "it judges steps 2, 3; there are steps 0 to 1"),
    ('{"verdicts": []}', "it judges steps ; there are steps 0 to 1"),
    (reply("GOOD", "BAD") + reply("BAD", "BAD"), "it holds several lists of verdicts, and they d"),
    (reply("GOOD", "FINE"), "\"verdict\" of step 1 is 'FINE', neither GOOD nor BAD"),
    (reply("GOOD", "GOOD/BAD"), "\"verdict\" of step 1 is 'GOOD/BAD', neither GOOD nor BAD"),
    (reply("GOOD", True), '"verdict" of step 1 is True, neither GOOD nor BAD'),
    ('{"verdicts": [{"step": 0.0, "verdict": "GOOD"}]}', '"step" is 0.0, not a whole number'),
    ('{"verdicts": [{"step": true, "verdict": "GOOD"}]}', '"step" is True, not a whole number'),
    ('{"verdicts": [{"verdict": "GOOD"}]}', 'an entry of "verdicts" has no "step" and "verdict"'),
    ('{"verdicts": ["GOOD", "BAD"]}', 'an entry of "verdicts" has no "step" and "verdict"'),
    ('{"verdicts": {"0": "GOOD"}}', '"verdicts" is not a list'),
    ("{" * 5000, NO_OBJECT),
    ('{"verdicts":' + "[" * 100_000, NO_OBJECT),
]


@each(("text", "message"), UNREADABLE)
def test_unreadable_is_never_a_guess(text, message):
    with pytest.raises(VerdictError) as caught:
        parse_verdicts(text, n_steps=2)
    assert str(caught.value).startswith(message)


def test_rates():
    verdicts = [
        Verdict(VerdictStatus.JUDGED, (True,)),
        Verdict(VerdictStatus.JUDGED, ()),
        Verdict(VerdictStatus.BUDGET),
        Verdict(VerdictStatus.PARSE_FAILURE),
    ]
    rates = verdict_rates(verdicts)
    assert rates == {
        "adca/judge_judged_rate": 0.5,
        "adca/judge_parse_failure_rate": 0.25,
        "adca/judge_no_answer_rate": 0,
        "adca/judge_refused_rate": 0,
        "adca/judge_rejected_rate": 0,
        "adca/judge_unsendable_rate": 0,
        "adca/judge_deadline_rate": 0,
        "adca/judge_budget_rate": 0.25,
    }
    assert verdict_rates([]) == dict.fromkeys(rates, 0)
