"""Which actions a response asks for: cases.md A6, and the linear parser against its definition."""

import re

from cases import each
from hypothesis import given
from hypothesis import strategies as st

from rltune_envs.parse import ParsedActions, parse_actions

NAMES = ("Up", "Down", "Left", "Right")


def parse(response, *, limit=5, needs_think=False):
    return parse_actions(response, names=NAMES, limit=limit, needs_think=needs_think)


ANSWERS = [  # (inside the answer tags, executed, invalid, over the limit of 5)
    ("", (), 1, 0),
    ("Up", ("Up",), 0, 0),
    ("up||DOWN", ("Up", "Down"), 0, 0),
    ("  lEfT \n|| Right\t", ("Left", "Right"), 0, 0),
    ("Up || || Down", ("Up",), 1, 0),  # an empty name is a bad name; Down is not executed
    ("Up ||", ("Up",), 1, 0),
    ("|| Up", (), 1, 0),
    ("Up|Down", (), 1, 0),
    ("Up ||| Down", ("Up",), 1, 0),
    ("Up, Down", (), 1, 0),
    ("Up Down", (), 1, 0),
    ("Jump || Up", (), 1, 0),  # Up was planned for the state after Jump
    ("Up || Jump || Right", ("Up",), 1, 0),  # the published parser would execute Right
    ("Upward", (), 1, 0),  # whole names: no match inside a word
    ("Up || Upward || Down", ("Up",), 1, 0),
    ("Down.", (), 1, 0),
    ("Up｜｜Down", (), 1, 0),
    ("Ｕｐ", (), 1, 0),
    (" || ".join(["Up"] * 50), ("Up",) * 5, 0, 45),  # a cap cuts, it does not punish
    (" || ".join(["Up"] * 6 + ["Jump"]), ("Up",) * 5, 1, 1),
]


@each(("answer", "actions", "n_invalid", "n_over_limit"), ANSWERS)
def test_names_inside_an_answer(answer, actions, n_invalid, n_over_limit):
    expected = ParsedActions(actions, n_invalid, n_over_limit)

    assert parse(f"<answer>{answer}</answer>") == expected
    assert parse(f"<think>Up || Up</think> <answer>{answer}</answer>", needs_think=True) == expected
    assert expected.is_valid == (n_invalid == 0)


@each(
    "response",
    [answer for answer, *_ in ANSWERS]
    + [
        "<answer>Up",
        "<answer>Up ",
        "Up</answer>",
        "</answer>Up<answer>",
        "<think></think><answer>Up ",
    ],
)
def test_without_a_closed_answer_nothing_is_asked_for(response):
    assert parse(response) == ParsedActions((), n_invalid=1, n_over_limit=0)
    assert parse(response, needs_think=True) == ParsedActions((), n_invalid=1, n_over_limit=0)


def test_the_first_complete_answer_counts():
    assert parse("<answer>Up</answer> text <answer>Down</answer>").actions == ("Up",)
    assert parse("<answer>Up</answer> junk || Down").actions == ("Up",)
    assert parse("<answer>Up <answer>Down</answer>").actions == ()


THOUGHTS = [
    ("<think>a</think><answer>Up</answer>", ("Up",)),
    ("<think></think> \n <answer>Up</answer>", ("Up",)),
    ("<think>a</think> so: <answer>Up</answer>", ()),
    ("<answer>Up</answer>", ()),
    ("a</think><answer>Up</answer>", ()),
    ("<think>a<answer>Up</answer>", ()),
    ("<think><answer>Up</answer></think><answer>Down</answer>", ("Down",)),
    ("<think>a</think> b</think><answer>Up</answer>", ("Up",)),
]


@each(("response", "actions"), THOUGHTS)
def test_a_thought_stands_directly_before_the_answer(response, actions):
    assert parse(response, needs_think=True).actions == actions


PIECES = ["<think>", "</think>", "<answer>", "</answer>", "Up", "||", " ", "\n", "x"]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_searches_find_what_the_regular_expressions_define(response):
    plain = re.search(r"<answer>(.*?)</answer>", response, re.DOTALL)
    thought = re.search(r"<think>.*?</think>\s*<answer>(.*?)</answer>", response, re.DOTALL)
    for needs_think, match in ((False, plain), (True, thought)):
        if match is None:
            assert parse(response, needs_think=needs_think) == ParsedActions((), 1, 0)
        else:
            again = parse(f"<answer>{match[1]}</answer>")
            assert parse(response, needs_think=needs_think) == again
