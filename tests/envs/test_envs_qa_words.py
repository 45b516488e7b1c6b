"""Text without blanks: found by pairs of characters, limited and scored by characters."""

import pytest
from cases import each

from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.evidence import missing, queries
from rltune_envs.multihop_qa.protocol import information
from rltune_envs.multihop_qa.records import Passage, Question
from rltune_envs.multihop_qa.verifiers import exact_match, f1, normalize_answer, sub_em
from rltune_envs.multihop_qa.words import first_units, terms, units

BEIJING = Passage("北京", "北京是中国的首都。")
TOKYO = Passage("東京", "東京タワーは東京にある。")


@each(
    ("text", "expected"),
    [
        ("Ada Bell's  book.", ["Ada", "Bell's", "book."]),  # as blanks part it
        ("在Mac上", ["在", "Mac", "上"]),
        ("서울 타워", ["서울", "타워"]),  # Korean has blanks
        ("タワー", ["タ", "ワ", "ー"]),  # the long sound is a character
        ("ア・イ", ["ア", "・", "イ"]),
        ("กินิ", ["ก", "ิ", "น", "ิ"]),
        ("𠮷野", ["𠮷", "野"]),  # beyond the first plane
        (" \n", []),
    ],
)
def test_units(text, expected):
    assert units(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Arthur's 1,834 x_1", ["arthur", "s", "1", "834", "x_1"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("中", ["中"]),
        ("ﾀﾜｰ", ["タワ", "ワー"]),  # half-width forms are folded
        ("在Mac上线。下", ["在", "mac", "上线", "下"]),  # no pair across a mark or a script
    ],
)
def test_terms_of_an_index(text, expected):
    assert terms(text) == expected


@each(
    ("n", "expected"),
    [(0, ""), (1, "Ab"), (2, "Ab 在"), (3, "Ab 在线"), (4, "Ab 在线 cd"), (9, "Ab 在线 cd")],
)
def test_a_limit_cuts_after_a_character(n, expected):
    assert first_units("Ab  在线\ncd", n) == expected


def test_bm25_finds_by_pairs():
    retriever = Bm25Retriever([BEIJING, TOKYO])
    assert retriever.search("哪个城市是中国首都？", k=2) == (BEIJING,)
    assert retriever.search("東京タワー", k=2) == (TOKYO,)  # 京 alone is in both


def test_the_word_limit_limits():
    block, shown = information([TOKYO], max_words=4, is_compact=True)
    assert (block, shown) == (" <information>東京タワ</information>", (TOKYO,))
    block, shown = information([TOKYO], max_words=5, is_compact=False)
    assert block == "<information>Doc 1 (Title: 東京</information>"  # 5 words, none of its text
    assert shown == ()


SCORES = [  # (prediction, gold, EM, contained, F1 by hand)
    ("北京。", "北京", 1, 1, 1.0),
    ("《北 京》", "北京", 1, 1, 1.0),  # blanks beside such characters say nothing
    ("北京市", "北京", 0, 1, 0.8),  # 2 * 2 / (3 + 2)
    ("是北京", "京北", 0, 0, 0.8),  # F1 knows no order
    ("上海", "北京", 0, 0, 0.0),
    ("iPhone 手机", "iphone手机", 1, 1, 1.0),
    ("“東京”", "東京", 1, 1, 1.0),
    ("東京 Tower", "The Tower", 0, 1, 2 / 4),  # 東 京 tower against tower: 2 * 1 / (3 + 1)
]


@each(("prediction", "gold", "em", "contained", "overlap"), SCORES)
def test_scores(prediction, gold, em, contained, overlap):
    assert exact_match(prediction, [gold]) == em
    assert sub_em(prediction, [gold]) == contained
    assert f1(prediction, [gold]) == pytest.approx(overlap)


def test_normal_form_keeps_the_rest():
    assert normalize_answer("ソニー・ミュージック") == "ソニーミュージック"
    assert normalize_answer("“Sony”") == "“sony”"  # without such a character as SQuAD does it


def test_the_expert_writes_short_queries_and_knows_an_edition():
    long = Passage("东京", "一二三四五六七八九十" * 6)
    title, by_text = queries([long], by_text=True)
    assert (title, len(units(by_text))) == ("东京", 40)
    question = Question("q", "谁", ("甲",), "open", 1, (long,))
    cut = Passage("东京", long.text[:30])
    assert missing({cut}, question, is_exact=False) == []
