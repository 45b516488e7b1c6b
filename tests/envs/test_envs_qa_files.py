"""Every file format becomes the same records."""

import json
from dataclasses import replace
from typing import get_args

import pytest

from rltune.spec.schema.env import QuestionFormat
from rltune_envs.multihop_qa.files import FILE_FORMATS, load_questions
from rltune_envs.multihop_qa.records import Hop, Passage, Question

PASSAGES = {
    "Ada Bell": ["Ada Bell wrote Red Dawn.", " She lived in Ulm."],
    "Red Dawn (novel)": ["Red Dawn is a novel."],
    "Ulm": ["Ulm lies on the Danube.", "", " It has a minster. "],
}
ORIGINAL = {
    "_id": "5a7",
    "question": " Where did the writer of Red Dawn live? ",
    "answer": "Ulm",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Red Dawn (novel)", 0], ["Ada Bell", 0], ["Ada Bell", 1]],
    "context": [[title, sentences] for title, sentences in PASSAGES.items()],
}
COLUMNS = {
    **{key: value for key, value in ORIGINAL.items() if key != "_id"},
    "supporting_facts": {
        "title": ["Red Dawn (novel)", "Ada Bell", "Ada Bell"],
        "sent_id": [0, 0, 1],
    },
    "context": {"title": list(PASSAGES), "sentences": list(PASSAGES.values())},
}
EXPECTED = Question(
    question_id="5a7",
    text="Where did the writer of Red Dawn live?",
    answers=("Ulm",),
    kind="bridge",
    hops=2,  # the two passages that support it
    evidence=(
        Passage("Red Dawn (novel)", "Red Dawn is a novel."),
        Passage("Ada Bell", "Ada Bell wrote Red Dawn. She lived in Ulm."),
    ),
    passages=(
        Passage("Ada Bell", "Ada Bell wrote Red Dawn. She lived in Ulm."),
        Passage("Red Dawn (novel)", "Red Dawn is a novel."),
        Passage("Ulm", "Ulm lies on the Danube. It has a minster."),
    ),
)
MUSIQUE = {
    "id": "3hop1__7_8_9",
    "paragraphs": [
        {"idx": 4, "title": "Ulm", "paragraph_text": "Ulm has a mayor, Bo Kay."},
        {"idx": 5, "title": "Red Dawn", "paragraph_text": "Ada Bell wrote it."},
        {"idx": 6, "title": "Ada Bell", "paragraph_text": "She lives in Ulm."},
        {"idx": 7, "title": "Ulm", "paragraph_text": "Another Ulm."},
    ],
    "question": "Who is mayor where the writer of the #1 book Red Dawn lives?",
    "question_decomposition": [
        {"id": 7, "question": "the #1 Red Dawn >> writer", "answer": "Ada Bell",
         "paragraph_support_idx": 5},
        {"id": 8, "question": "Where does #1 live?", "answer": "Ulm", "paragraph_support_idx": 6},
        {"id": 9, "question": "Who is mayor of #2, not #1 or #3?", "answer": "Bo Kay",
         "paragraph_support_idx": 4},
    ],
    "answer": "Bo Kay",
    "answer_aliases": ["Kay", "Bo Kay", "The", "..."],
    "answerable": True,
}  # fmt: skip
WIKI2 = {
    **ORIGINAL,
    "type": "compositional",
    "evidences": [["Red Dawn (novel)", "author", "Ada Bell"], ["Ada Bell", "residence", "Ulm"]],
}
SILVER = {
    "id": "s0",
    "question": "Where did the writer of Red Dawn live?",
    "answer": "Ulm",
    "kind": "compositional",
    "support_label": "silver",
    "paragraphs": [
        {"title": title, "text": " ".join(sentences), "is_supporting": title != "Ulm"}
        for title, sentences in PASSAGES.items()
    ],
}
BAMBOOGLE = {"Question": "Who ruled when Ulm fell?", "id": "b1", "answer": ["Otto", "Otto I"]}


def write(folder, *rows, name="q.json", lines=False):
    path = folder / name
    path.write_text(
        "\n".join(map(json.dumps, rows)) if lines else json.dumps(list(rows)), encoding="utf-8"
    )
    return path


def load_one(folder, row, **options):
    (question,) = load_questions(write(folder, row), **options)
    return question


def test_hotpotqa_as_first_published(tmp_path):
    assert load_one(tmp_path, ORIGINAL) == EXPECTED


def test_hotpotqa_in_columns_is_the_same_question(tmp_path):
    assert load_one(tmp_path, {"id": "5a7", **COLUMNS}) == EXPECTED


def test_a_row_without_an_id_is_named_by_its_place(tmp_path):
    first, second = load_questions(write(tmp_path, COLUMNS, COLUMNS, name="dev.json"))
    assert first == replace(EXPECTED, question_id="dev:1")
    assert second == replace(EXPECTED, question_id="dev:2")


def test_json_lines_are_read_by_their_content_not_by_their_name(tmp_path):
    path = write(tmp_path, ORIGINAL, COLUMNS, name="dev.json", lines=True)
    path.write_text("\ufeff\n" + path.read_text() + "\n\n", encoding="utf-8")  # BOM, blank lines
    first, second = load_questions(path)
    assert (first, second.question_id) == (EXPECTED, "dev:3")  # the line, not the place


def test_json_lines_may_hold_unicode_separators(tmp_path):
    row = {**ORIGINAL, "question": "one\u2028two?"}
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
    assert load_questions(path)[0].text == "one\u2028two?"


def test_musique(tmp_path):
    assert load_one(tmp_path, MUSIQUE) == Question(
        question_id="3hop1__7_8_9",
        text=MUSIQUE["question"],
        answers=("Bo Kay", "Kay"),  # repeated ones and those that normalise to nothing are gone
        kind="3hop1",
        hops=3,
        evidence=(
            Passage("Red Dawn", "Ada Bell wrote it."),
            Passage("Ada Bell", "She lives in Ulm."),
            Passage("Ulm", "Ulm has a mayor, Bo Kay."),  # not the other one
        ),
        decomposition=(
            Hop("the #1 Red Dawn >> writer", "Ada Bell", "Red Dawn"),  # no earlier answer: kept
            Hop("Where does Ada Bell live?", "Ulm", "Ada Bell"),
            Hop("Who is mayor of Ulm, not Ada Bell or #3?", "Bo Kay", "Ulm"),
        ),
        passages=(
            Passage("Ulm", "Ulm has a mayor, Bo Kay."),
            Passage("Red Dawn", "Ada Bell wrote it."),
            Passage("Ada Bell", "She lives in Ulm."),
            Passage("Ulm", "Another Ulm."),
        ),
    )


def test_musique_without_a_shape_in_its_id_counts_its_steps(tmp_path):
    assert load_one(tmp_path, {**MUSIQUE, "id": "x"}).kind == "3hop"


def test_2wiki_as_first_published(tmp_path):
    assert load_one(tmp_path, WIKI2) == replace(
        EXPECTED,
        kind="compositional",
        decomposition=(
            Hop("Red Dawn (novel) >> author", "Ada Bell", "Red Dawn (novel)"),
            Hop("Ada Bell >> residence", "Ulm", "Ada Bell"),
        ),
    )


def test_2wiki_triples_without_their_passage_are_no_decomposition(tmp_path):
    row = {**WIKI2, "evidences": [["Red Dawn", "author", "Ada Bell"], ["Ada Bell", "x", "Ulm"]]}
    assert load_one(tmp_path, row).decomposition == ()


def test_2wiki_with_paragraphs(tmp_path):
    question = load_one(tmp_path, SILVER)
    assert question.supporting == ("Ada Bell", "Red Dawn (novel)")
    assert (question.kind, question.hops, question.answers) == ("compositional", 2, ("Ulm",))
    assert [passage.title for passage in question.passages] == list(PASSAGES)


@pytest.mark.parametrize(
    ("answer", "answers"), [(["Otto", "Otto I"], ("Otto", "Otto I")), ("Otto", ("Otto",))]
)
def test_bamboogle(tmp_path, answer, answers):
    assert load_one(tmp_path, {**BAMBOOGLE, "answer": answer}) == Question(
        question_id="b1",
        text="Who ruled when Ulm fell?",
        answers=answers,
        kind="compositional",
        hops=2,
        evidence=(),
    )


def test_bamboogle_with_the_capital_key_of_its_table(tmp_path):
    row = {"Question": "Who ruled?", "Answer": "Otto"}
    assert load_one(tmp_path, row).answers == ("Otto",)


GOLDEN = {
    "id": "test_3",
    "question": "Who wrote it?",
    "golden_answers": ["The", " Ada Bell ", "A."],
}
BARE_FULLWIKI = {key: value for key, value in ORIGINAL.items() if key != "context"}
FULLWIKI = {
    **ORIGINAL,
    "context": [["Bonn", ["Bonn is a city."]]],
}  # what a search found


def test_a_question_with_golden_answers(tmp_path):
    assert load_one(tmp_path, GOLDEN) == Question(
        question_id="test_3",
        text="Who wrote it?",
        answers=("Ada Bell",),  # the others hold no word
        kind="open",
        hops=0,  # nobody says
        evidence=(),
    )


@pytest.mark.parametrize("row", [FULLWIKI, BARE_FULLWIKI])
def test_full_wiki_rows_have_neither_passages_nor_evidence(tmp_path, row):
    question = load_one(tmp_path, row, file_format="hotpotqa_fullwiki")
    assert question == replace(EXPECTED, evidence=(), passages=())


@pytest.mark.parametrize(
    ("question", "answer", "kind", "candidates"),
    [
        ("Is Ulm older?", "Yes", "bridge", ("yes", "no")),
        ("Is it Ada Bell or red dawn?", "Red Dawn", "comparison", ("Red Dawn", "Ada Bell")),
        ("Is it Ada Bell or red dawn?", "red dawn", "bridge_comparison", ("Red Dawn", "Ada Bell")),
        ("Is it Ada Bell or red dawn?", "Red Dawn", "bridge", ()),  # offers no choice
        ("Is it Ada Bell or red dawn?", "Ulm", "comparison", ()),  # the answer is not offered
        ("Is it red dawn or the book?", "Red Dawn", "comparison", ()),  # one name alone
        ("Is it Ada Bellamy or Red Dawn?", "Red Dawn", "comparison", ()),  # another name
        ("Is it Ada Bell's or Red Dawn?", "Red Dawn", "comparison", ("Red Dawn", "Ada Bell")),
        ("Red Dawn, or Ada Bell?", "Red Dawn", "comparison", ("Red Dawn", "Ada Bell")),
    ],
)
def test_candidates_are_what_the_question_offers(tmp_path, question, answer, kind, candidates):
    row = {**ORIGINAL, "question": question, "answer": answer, "type": kind}
    assert load_one(tmp_path, row).candidates == candidates


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (ORIGINAL, "hotpotqa"),
        (COLUMNS, "hotpotqa"),
        (MUSIQUE, "musique"),
        (WIKI2, "2wiki"),
        (SILVER, "2wiki"),
        (BAMBOOGLE, "bamboogle"),
        (GOLDEN, "golden_answers"),
        (BARE_FULLWIKI, "hotpotqa_fullwiki"),
    ],
)
def test_a_named_format_reads_what_auto_reads(tmp_path, row, name):
    assert load_one(tmp_path, row) == load_one(tmp_path, row, file_format=name)


def test_file_formats_are_those_of_the_config():
    assert get_args(QuestionFormat) == FILE_FORMATS
