"""BM25: numbers by hand, ties, words, and no dependence on anything but the passages."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from math import log

import pytest
from cases import each

from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.words import terms

# Three passages of 2, 4 and 6 words, titles included; their mean is 4.
CORPUS = (
    Passage("cat", "dog"),
    Passage("bird", "cat cat fish"),
    Passage("fish", "fish fish fish dog dog"),
)
# k1 = 1.5, b = 0.75. Length part k1 * (1 - b + b * l / 4): 0.9375, 1.5, 2.0625 for l = 2, 4, 6.
# `cat` and `fish` are in 2 of 3: idf = ln(1 + 1.5 / 2.5) = ln 1.6; `bird` in 1: ln(1 + 2.5 / 1.5).
GOLDEN = [
    ("cat", [(1, log(1.6) * 2 / (2 + 1.5)), (0, log(1.6) * 1 / (1 + 0.9375))]),
    ("CAT, cat?", [(1, 2 * log(1.6) * 2 / (2 + 1.5)), (0, 2 * log(1.6) * 1 / (1 + 0.9375))]),
    ("bird", [(1, log(1 + 2.5 / 1.5) * 1 / (1 + 1.5))]),
    ("fish", [(2, log(1.6) * 4 / (4 + 2.0625)), (1, log(1.6) * 1 / (1 + 1.5))]),
    (
        "dog bird unheard",
        [
            (1, log(1 + 2.5 / 1.5) * 1 / (1 + 1.5)),  # 0.392
            (0, log(1.6) * 1 / (1 + 0.9375)),  # 0.243
            (2, log(1.6) * 2 / (2 + 2.0625)),  # 0.231
        ],
    ),
    ("unheard", []),
    ("", []),
    ("?!", []),
]


@each(("query", "expected"), GOLDEN, ids=[query or "-" for query, _ in GOLDEN])
def test_scores_by_hand(query, expected):
    found = Bm25Retriever(CORPUS).rank(query, k=3)
    assert [number for number, _ in found] == [number for number, _ in expected]
    assert [score for _, score in found] == pytest.approx([one for _, one in expected], rel=1e-12)


def test_search_returns_the_passages_best_first_and_at_most_k():
    retriever = Bm25Retriever(CORPUS)
    assert retriever.search("dog bird", k=3) == (CORPUS[1], CORPUS[0], CORPUS[2])
    assert retriever.search("dog bird", k=2) == (CORPUS[1], CORPUS[0])
    assert retriever.search("bird", k=3) == (CORPUS[1],)
    assert retriever.search("unheard", k=3) == ()


def test_equal_scores_keep_the_order_of_the_passages():
    same = tuple(Passage(f"t{i}", "red dawn") for i in range(50))
    retriever = Bm25Retriever(same)
    for k in (1, 2, 7, 49, 50, 60):
        assert [number for number, _ in retriever.rank("dawn", k=k)] == list(range(min(k, 50)))


def test_two_levels_of_equal_scores_keep_the_order_within_each():
    passages = [Passage("t", "dawn dawn dawn" if i % 3 else "dawn red red") for i in range(300)]
    expected = sorted(range(300), key=lambda i: (i % 3 == 0, i))
    found = Bm25Retriever(passages).rank("dawn", k=250)
    assert [number for number, _ in found] == expected[:250]


def test_a_better_passage_comes_before_equal_ones():
    passages = [Passage("a", "red dawn"), Passage("b", "red dawn"), Passage("dawn", "red dawn")]
    assert [number for number, _ in Bm25Retriever(passages).rank("dawn", k=2)] == [2, 0]


def test_the_order_of_the_words_of_a_query_changes_no_bit():
    passages = [Passage(f"w{i % 7}", f"w{i % 3} w{i % 5} w{i % 11}") for i in range(200)]
    retriever = Bm25Retriever(passages)
    query = [f"w{i}" for i in range(11)]
    assert retriever.rank(" ".join(query), k=20) == retriever.rank(" ".join(query[::-1]), k=20)


@each(
    ("text", "expected"),
    [
        ("Arthur's Magazine (1844)", ["arthur", "s", "magazine", "1844"]),
        ("The STRASSE, the Straße", ["the", "strasse", "the", "strasse"]),  # no stop words
        ("running runs", ["running", "runs"]),  # no stemming
        ("Xawery Żuławski", ["xawery", "żuławski"]),
        ("caf\u00e9 cafe\u0301", ["café", "café"]),  # two spellings of one letter
        ("東京 Ωmega ﬁsh", ["東京", "ωmega", "fish"]),
        ("- ? …", []),
    ],
)
def test_words(text, expected):
    assert terms(text) == expected


def test_title_and_text_are_both_searched():
    retriever = Bm25Retriever([Passage("Ulm", "A town."), Passage("Bonn", "A city.")])
    assert [one.title for one in retriever.search("ULM", k=1)] == ["Ulm"]
    assert [one.title for one in retriever.search("city", k=1)] == ["Bonn"]


def test_a_passage_without_words_is_never_found_and_does_no_harm():
    retriever = Bm25Retriever([Passage("", "..."), Passage("Ulm", "")])
    assert retriever.search("ulm ...", k=5) == (Passage("Ulm", ""),)


@pytest.mark.parametrize("passages", [(), (Passage("?", "!"),)])
def test_nothing_to_search_is_refused(passages):
    with pytest.raises(ValueError, match=f"^passages: there is no word in the {len(passages)}"):
        Bm25Retriever(passages)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_refused(k):
    with pytest.raises(ValueError, match=rf"^k: {k} is below 1; ask for at least one passage$"):
        Bm25Retriever(CORPUS).search("cat", k=k)


def test_it_is_silent(capfd):
    Bm25Retriever([Passage(f"t{i}", "red dawn") for i in range(2000)]).search("dawn", k=3)
    assert capfd.readouterr() == ("", "")


def test_threads_and_copies_find_the_same():
    passages = [Passage(f"w{i % 97}", f"w{i % 31} w{i % 53} w{i % 11}") for i in range(1000)]
    retriever = Bm25Retriever(passages)
    queries = [f"w{i} w{i // 2} w{i // 3}" for i in range(97)]
    alone = [retriever.rank(query, k=5) for query in queries]
    copy = pickle.loads(pickle.dumps(retriever))
    assert [copy.rank(query, k=5) for query in queries] == alone
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: retriever.rank(query, k=5), queries)) == alone
