"""Closed-world questions: answered again from their texts, and certified against the passages."""

import math
import re
from collections import Counter
from itertools import pairwise

import pytest
from cases import each
from qa_oracle import answer, world_of

from rltune_envs.errors import GenerationError
from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.facts import Entity
from rltune_envs.multihop_qa.names import ALL
from rltune_envs.multihop_qa.protocol import INVALID, NO_SEARCH_LEFT, NOTHING_FOUND, SEARCH_FAILED
from rltune_envs.multihop_qa.questions import (
    HOPS,
    KINDS,
    chains,
    content_hash,
    make_question,
    near_hash,
)
from rltune_envs.multihop_qa.records import Hop, Passage, Question
from rltune_envs.multihop_qa.verifiers import exact_match
from rltune_envs.multihop_qa.world import WORDS, World

N = 4_000
SIGMAS = 4  # a valid generator is further off once in 16,000 checks


@pytest.fixture(scope="module")
def world():
    return world_of(0, 3000)


@pytest.fixture(scope="module")
def questions(world):
    return [make_question(world, seed) for seed in range(N)]


@pytest.fixture(scope="module")
def places(world):
    """Word or name -> the passages whose text holds it, by looking at all runs of one or two."""
    held: dict[str, set[str]] = {}
    for passage in world.passages:
        words = re.findall(r"\w+", passage.text)
        for run in (*words, *map(" ".join, pairwise(words))):
            held.setdefault(run, set()).add(passage.title)
    return held


def test_another_reader_finds_the_same_answer(world, questions):
    for question in questions:
        gold, facts, _ = answer(world, question.text)
        assert question.answers[0] == gold
        assert [(hop.title, hop.answer) for hop in question.decomposition] == facts


def test_every_hop_needs_a_passage_of_its_own(questions):
    for question in questions:
        titles = [hop.title for hop in question.decomposition]
        assert len(titles) == len(set(titles)) == question.hops
        assert question.supporting == tuple(titles)
        if question.kind == "bridge":  # no way back to what was found before
            values = [hop.answer for hop in question.decomposition]
            assert len({titles[0], *values}) == question.hops + 1


def test_no_passage_answers_a_question_alone(world, questions, places):
    for question in questions:
        _, _, named = answer(world, question.text)
        together = set.intersection(*(places[name] for name in named))
        if question.kind == "comparison":
            assert not together  # so none can hold two compared facts either
        else:
            assert not together & places[question.answers[0]]


def test_the_way_to_the_answer_is_not_in_the_question(world, questions):
    for question in questions:
        _, facts, named = answer(world, question.text)
        hidden = {name for fact in facts for name in fact if name in world.entities} - set(named)
        assert not any(re.search(rf"\b{name}\b", question.text) for name in hidden)
        if question.kind == "bridge":
            assert not re.search(rf"\b{question.answers[0]}\b", question.text)


def test_questions_are_short_and_of_known_words(questions):
    for question in questions:
        assert len(question.text.split()) <= 24
        assert set(re.findall(r"\w+|[^\w\s]", question.text)) <= set(WORDS)
        for text in (*question.answers, *(hop.question for hop in question.decomposition)):
            assert set(re.findall(r"\w+|[^\w\s]", text)) <= set(WORDS)


def test_no_word_is_there_for_nothing(world, questions):
    notices = (INVALID, NO_SEARCH_LEFT, NOTHING_FOUND, SEARCH_FAILED)
    texts = [*notices, *(passage.text for passage in world.passages)]
    texts += [text for one in questions for text in (one.text, *one.answers)]
    texts += [hop.question for one in questions for hop in one.decomposition]
    used = {word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)}
    assert set(WORDS) - set(ALL) <= used


def test_candidates_hold_the_answer_once(questions):
    kinds = Counter()
    for number, question in enumerate(questions):
        if number < 400:
            assert sum(exact_match(one, question.answers) for one in question.candidates) == 1
        assert len(set(question.candidates)) == len(question.candidates)
        kinds[question.kind, len(question.candidates)] += 1
        if question.kind == "comparison" and question.candidates != ("yes", "no"):
            assert all(name in question.text for name in question.candidates)
    bridge = {size for kind, size in kinds if kind == "bridge"}
    # professions and products, regions, years, towns, organisations, persons
    assert bridge == {12, 20, 100, 120, 476, 1431}
    assert {size for kind, size in kinds if kind == "comparison"} == {2}


def test_kinds_hops_and_choices_are_balanced(questions):
    def require_even(counts: list[int]) -> None:
        n, p = sum(counts), 1 / len(counts)
        assert max(abs(c - n * p) for c in counts) < SIGMAS * math.sqrt(n * p * (1 - p))

    shapes = Counter((question.kind, question.hops) for question in questions)
    assert set(shapes) == {(kind, hops) for kind in KINDS for hops in HOPS}
    require_even(list(shapes.values()))
    closed = [question for question in questions if question.candidates == ("yes", "no")]
    by_wording: dict[str, Counter[str]] = {}
    for question in closed:  # whatever is compared, its words do not tell yes from no
        wording = re.sub(r"[A-Z][a-z]+ ?[A-Z]?[a-z]+\b", "_", question.text)
        key = wording.split()[-1] if "same" in wording else "order"
        by_wording.setdefault(key, Counter())[question.answers[0]] += 1
    for counts in by_wording.values():
        require_even([counts["yes"], counts["no"]])
    named = [question for question in questions if " first, " in question.text]
    n_first = sum(question.answers[0] == question.candidates[0] for question in named)
    require_even([n_first, len(named) - n_first])


def test_gold_queries_find_the_gold_passages_first(world, questions):
    retriever = Bm25Retriever(world.passages)
    for title in {title for question in questions for title in question.supporting}:
        assert retriever.search(title, k=1)[0].title == title


def test_equal_hashes_mean_equal_questions(questions):
    def sense(question: Question) -> str:
        words = sorted(re.findall(r"\w+", question.text))
        return repr((words, question.answers[0], sorted(question.supporting)))

    pairs = {(content_hash(question), sense(question)) for question in questions}
    assert len(pairs) == len({one for one, _ in pairs}) == len({two for _, two in pairs})
    assert len(pairs) > 0.9 * N
    assert len({near_hash(question) for question in questions}) < len(pairs)


def test_there_are_tens_of_thousands_of_two_hop_questions(world):
    texts = {make_question(world, seed, hops=(2,)).text for seed in range(8_000)}
    assert len(texts) > 7_400  # 50,000 that are drawn alike would give 7,390, or fewer


def test_chains_by_hand():
    assert chains("region", 1) == (("capital",),)
    assert chains("region", 2) == (("capital", "region"), ("capital", "product"))
    assert chains("year", 1) == ()
    assert chains("town", 0) == ((),)


def question_of(text: str, *hops: tuple[str, str], gold: str = "yes") -> Question:
    return Question(
        question_id="x",
        text=text,
        answers=(gold,),
        kind="bridge",
        hops=len(hops),
        evidence=tuple(Passage(title, "") for title, _ in hops),
        decomposition=tuple(Hop("?", value, title) for title, value in hops),
    )


def test_the_order_of_what_is_compared_does_not_matter():
    one = question_of("Who was born first, Al Ash or Bo Birch?", ("Al Ash", "1"), ("Bo Birch", "2"))
    other = question_of(
        "Who was born first, Bo Birch or Al Ash", ("Bo Birch", "2"), ("Al Ash", "1")
    )
    assert content_hash(one) == content_hash(other)
    assert near_hash(one) == near_hash(other)


OTHERS = [
    question_of("Do Al Ash and Bo Birch?", ("Al Ash", "x"), ("Bo Birch", "y")),
    question_of("Do Al Birch and Bo Ash?", ("Al Birch", "x"), ("Bo Ash", "y")),  # the same words
    question_of("Do Al Ash and Bo Birch?", ("Al Ash", "x"), ("Bo Birch", "y"), gold="no"),
    question_of("Are Al Ash and Bo Birch?", ("Al Ash", "x"), ("Bo Birch", "y")),
    question_of("Do Al Ash and Bo Birch?", ("Al Ash", "x"), ("Bo Birch", "z")),
]


def test_what_makes_another_question():
    assert len(set(map(content_hash, OTHERS))) == len(OTHERS)
    assert [near_hash(one) == near_hash(OTHERS[0]) for one in OTHERS] == [1, 0, 1, 1, 1]


def test_a_question_without_known_evidence_is_near_to_itself_only():
    bare = [question_of("Who?"), question_of("What?")]
    assert near_hash(bare[0]) == content_hash(bare[0]) != near_hash(bare[1])


@each("hops", HOPS)
@each("kind", KINDS)
def test_only_what_was_asked_for_comes(kind, hops):
    world = world_of(0, 100)  # the smallest world has questions of all shapes, too
    for seed in range(200):
        question = make_question(world, seed, hops=[hops], kinds=[kind])
        assert (question.kind, question.hops) == (kind, hops)
        assert question.answers[0] == answer(world, question.text)[0]


def test_the_order_of_the_options_does_not_matter():
    world = world_of(0, 100)
    for seed in range(20):
        one = make_question(world, seed, hops=(2, 3), kinds=KINDS)
        assert one == make_question(world, seed, hops=(3, 2, 3), kinds=KINDS[::-1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_world_without_such_questions_is_an_error(kind):
    empty = World(seed=0, passages=100)
    empty.entities = {name: Entity(name, one.kind, {}) for name, one in empty.entities.items()}
    with pytest.raises(
        GenerationError,
        match=rf"^no {kind} question of 3 hops in 2000 attempts for seed 7 in a world of 100 "
        r"passages; make it larger$",
    ):
        make_question(empty, 7, hops=(3,), kinds=(kind,))
