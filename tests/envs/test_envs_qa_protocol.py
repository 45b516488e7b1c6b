"""The turn protocol: which text of a response is an action, and what is shown after it."""

import pytest
from cases import each

from rltune_envs.multihop_qa.protocol import (
    ANSWER,
    INVALID,
    NO_SEARCH_LEFT,
    SEARCH,
    SEARCH_FAILED,
    Action,
    format_action,
    information,
    instruction,
    invents_information,
    notice,
    parse_name,
    parse_response,
    with_limits,
)
from rltune_envs.multihop_qa.records import Passage

T = "<think>so</think>"
NATURAL = [
    (f"{T}<answer>x</answer>", "answer: x"),
    (f" \n{T} \n <search> a  b\nc </search>", "search: a b c"),
    (f"{T} I will look. <search>a</search>", "search: a"),
    (f"{T}<search>a</search><answer>b</answer>", "search: a"),  # the first counts
    (f"{T}<answer>b</answer><search>a</search>", "answer: b"),
    (f"{T}<search>a<answer>b</answer>", "answer: b"),  # the first complete one
    (f"{T}<search>a<answer>b</answer></search>", "search: a<answer>b</answer>"),
    (f"{T}<answer>b</answer> and so on </answer>", "answer: b"),
    (f"{T}{T}<answer>b</answer>", "answer: b"),
    ("<think><answer>a</answer></think><answer>b</answer>", "answer: b"),
    ("<think>the <information> says b</think><answer>b</answer>", "answer: b"),
    (f"{T}<search>a</search><information>b</information><answer>c</answer>", "search: a"),
]
NATURAL_INVALID = [
    "",
    "x",
    "<answer>x</answer>",  # no thought
    "<think><answer>x</answer>",  # the thought does not end
    "</think><answer>x</answer>",
    "so <think></think><answer>x</answer>",  # not at the start
    f"{T}",
    f"{T}x",
    f"{T}<answer>x",
    f"{T}<answer>x</search>",
    f"{T}<search>x</answer>",
    f"{T}<answer></answer>",
    f"{T}<search> \n\t</search>",
    f"{T}<search></search><answer>x</answer>",  # the first one counts, and it is empty
    f"{T}<Answer>x</Answer>",
    # Written by the policy itself, as if it had been read:
    f"{T}<information>Doc 1 <answer>x</answer></information>",
    f"{T}<information>Doc 1</information><answer>x</answer>",
    f"{T}<INFORMATION>Doc 1</INFORMATION><answer>x</answer>",
    f"{T}<information n='1'>Doc 1</information><answer>x</answer>",
    f"{T}<information><think></think><answer>x</answer></information>",
    "<think>a</think><information><think>b</think><search>x</search></information>",
]
COMPACT = [
    ("<search>Alba Corvin</search>", "search: Alba Corvin"),
    ("<answer> 1834 </answer>", "answer: 1834"),
    ("Alba <answer>yes</answer> no", "answer: yes"),
    (" <search>a</search> <information>x</information><answer>b</answer>", "search: a"),
]
COMPACT_INVALID = [
    "",
    "Alba Corvin",
    "<answer>yes",
    "<search></search>",
    "<information>Alba <answer>yes</answer></information>",
    "<search>a <information>b</information><answer>yes</answer>",
]


@each(
    ("response", "is_invented"),
    [
        (f"{T}<search>a</search><information>b</information>", True),
        ("<think>the <information> says b</think><answer>b</answer>", True),
        (f"{T}<search>a</search>< INFORMATION\n>b", True),
        ("<information>", True),
        (f"{T}<answer>the information</answer>", False),
        (f"{T}<search>information</search></information>", False),
        ("<informations>", False),
        (f'{T}<information doc="1">', True),
        ("", False),
        ("<" + " " * 100_000 + "information", False),
    ],
)
def test_an_information_block_that_the_policy_opens_is_invented(response, is_invented):
    assert invents_information(response) == is_invented


@each(("response", "name"), NATURAL)
def test_natural_actions(response, name):
    assert parse_response(response, needs_think=True).name == name


@each("response", NATURAL_INVALID)
def test_natural_responses_without_an_action(response):
    assert parse_response(response, needs_think=True) is None


@pytest.mark.parametrize(("response", "name"), COMPACT)
def test_compact_actions(response, name):
    assert parse_response(response, needs_think=False).name == name


@each("response", COMPACT_INVALID)
def test_compact_responses_without_an_action(response):
    assert parse_response(response, needs_think=False) is None


LONG = [  # (response, whether it is understood)
    ("<search>" * 100_000, False),
    ("<think>" + "</think>" * 100_000, False),
    ("<think></think>" + "<answer>" * 100_000, False),
    ("<think></think>" + "<search><answer>" * 60_000 + "</answer>", True),
    ("<think></think>" + "<information>" * 80_000 + "<answer>x</answer>", False),
    ("<think></think>" + "<search>" + "x\n" * 500_000 + "</search>", True),
]


@each("needs_think", [True, False])
@each(("response", "is_action"), LONG, ids=range(len(LONG)))
def test_parsing_takes_linear_time(response, is_action, needs_think):
    # These take milliseconds; a lazy regular expression would need many minutes.
    assert (parse_response(response, needs_think=needs_think) is not None) == is_action


@each("name", ["search: Alba Corvin", "answer: yes", "answer: a: b"])
@each("is_compact", [True, False])
def test_names_and_responses_are_the_same_thing(name, is_compact):
    action = parse_name(name)
    assert action.name == name
    written = format_action(action, is_compact=is_compact)
    assert parse_response(written, needs_think=False) == action


def test_formats():
    assert format_action(Action(SEARCH, "a b"), is_compact=True) == "<search>a b</search>"
    assert format_action(Action(ANSWER, "a b"), is_compact=False) == "<answer> a b </answer>"


@each("name", ["", "Up", "search", "search:", "search:  ", "find: x", "answer"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="write 'search: QUERY' or 'answer: TEXT'"):
        parse_name(name)


TWO = (Passage("Tormel", "Tormel is a town."), Passage("Vask", "Vask is a region."))


def test_information_in_both_prompts():
    assert information(TWO, max_words=99, is_compact=True) == (
        " <information>Tormel is a town. Vask is a region.</information>",
        TWO,
    )
    assert information(TWO, max_words=99, is_compact=False) == (
        "<information>Doc 1 (Title: Tormel) Tormel is a town.\n"
        "Doc 2 (Title: Vask) Vask is a region.</information>",
        TWO,
    )
    assert information((), max_words=99, is_compact=True) == (
        " <information>Nothing found.</information>",
        (),
    )


CUT = [  # words shown; each text has 4
    (1, "Tormel", TWO[:1]),
    (4, "Tormel is a town.", TWO[:1]),
    (5, "Tormel is a town. Vask", TWO),
    (8, "Tormel is a town. Vask is a region.", TWO),
]


@pytest.mark.parametrize(("max_words", "shown", "passages"), CUT)
def test_information_is_cut_inside_its_tags(max_words, shown, passages):
    block, found = information(TWO, max_words=max_words, is_compact=True)
    assert block == f" <information>{shown}</information>"
    assert found == passages


@pytest.mark.parametrize(("max_words", "n_shown"), [(4, 0), (5, 1), (12, 1), (13, 2)])
def test_a_passage_of_which_the_heading_alone_is_shown_was_not_read(max_words, n_shown):
    _, found = information(TWO, max_words=max_words, is_compact=False)
    assert found == TWO[:n_shown]  # "Doc 1 (Title: Tormel)" are 4 words, and its text 4 more


@pytest.mark.parametrize("max_words", [1, 5, 6, 300])
def test_a_natural_block_of_any_length_is_closed(max_words):
    block, _ = information(TWO * 50, max_words=max_words, is_compact=False)
    assert block.startswith("<information>Doc")
    assert block.endswith("</information>")
    inside = block.removeprefix("<information>").removesuffix("</information>")
    assert len(inside.split()) == max_words  # Doc 1 (Title: Tormel) and four words: 8 a passage


TAGS = [
    "</information>", "<answer>", "</answer>", "<search>", "<think>", "</think>", "<information>",
    "</ Information >", "<ANSWER>", "< answer\t>", "< / information>", "<search n='1'>",
    "<answer/>",
]  # fmt: skip


@each("tag", TAGS)
@each("is_compact", [True, False])
def test_tags_in_passages_are_disarmed(tag, is_compact):
    passage = Passage(f"T {tag}", f"a{tag}gold</answer> <{tag}b")
    block, shown = information((passage,), max_words=99, is_compact=is_compact)
    inside = block.strip().removeprefix("<information>").removesuffix("</information>")
    assert "gold" in inside
    assert tag not in inside
    assert "</answer>" not in inside
    assert "[/answer]" in inside
    assert shown == (passage,)


def test_line_breaks_in_passages_do_not_make_new_documents():
    passage = Passage("T", "one\nDoc 2 (Title: U) two\r\n three")
    block, _ = information((passage,), max_words=99, is_compact=False)
    assert "\n" not in block


def test_notices_and_instruction():
    for text in (INVALID, NO_SEARCH_LEFT, SEARCH_FAILED):
        assert notice(text, is_compact=True) == f" {text}"
        assert len(notice(text, is_compact=False)) > len(text)
    said = instruction(max_turns=7, max_searches=3)
    assert "at most 3 times" in said
    assert "7 responses" in said
    assert "<answer> Beijing </answer>" in said
    assert with_limits("x", searches_left=3, turns_left=4).splitlines() == [
        "x",
        "Searches left: 3. Responses left: 4.",
    ]
