"""Corpus files and documents of the Search-R1 protocol."""

import json

import pytest
from cases import each

from rltune_envs.errors import TaskError
from rltune_envs.multihop_qa.files_corpus import (
    document_from_passage,
    load_corpus,
    passage_from_document,
)
from rltune_envs.multihop_qa.records import Passage


@each(
    ("document", "passage"),
    [
        ({"id": "0", "contents": '"Ulm"\nUlm is\na town.'}, Passage("Ulm", "Ulm is\na town.")),
        ({"contents": "Ulm\nA town."}, Passage("Ulm", "A town.")),  # the quotes are a habit
        ({"contents": '"The "Red" Dawn"\nA book.'}, Passage('The "Red" Dawn', "A book.")),
        ({"contents": '"A "B""\nA book.'}, Passage('A "B"', "A book.")),
        ({"contents": '"Ulm"'}, Passage("Ulm", "")),
        ({"contents": '"'}, Passage('"', "")),
        ({"title": " Ulm ", "text": "A town. "}, Passage("Ulm", "A town.")),
        ({"title": "", "text": "A town."}, Passage("", "A town.")),
        ({"title": "Ulm", "text": "short", "contents": '"X"\nlong'}, Passage("Ulm", "short")),
        ({"title": None, "text": None, "contents": '"X"\nlong'}, Passage("X", "long")),
        ({"title": "Ulm", "contents": '"X"\nlong'}, Passage("X", "long")),
    ],
)
def test_documents(document, passage):
    assert passage_from_document(document) == passage


@pytest.mark.parametrize(
    "passage", [Passage("Ulm", "A town.\nOld."), Passage('"Ulm"', "ü"), Passage("", "A town.")]
)
def test_a_passage_survives_the_wire(passage):
    assert passage_from_document(document_from_passage(passage, number=3)) == passage


def test_a_written_document_can_be_read_by_clients_of_either_kind():
    document = document_from_passage(Passage("Two\nlines", "Text."), number=3)
    assert document == {
        "id": "3",
        "contents": '"Two lines"\nText.',
        "title": "Two\nlines",
        "text": "Text.",
    }


def test_load_corpus_keeps_the_order_of_the_lines(tmp_path):
    path = tmp_path / "wiki.jsonl"
    path.write_text(
        '{"id": "7", "contents": "\\"Ulm\\"\\nA town."}\n{"title": "Bonn", "text": "Another."}\n'
    )
    assert load_corpus(path) == (Passage("Ulm", "A town."), Passage("Bonn", "Another."))


def test_lines_that_are_no_documents_are_named(tmp_path):
    path = tmp_path / "wiki.jsonl"
    rows = [{"title": "Ulm", "text": "x"}, {"title": "Ulm"}, {"contents": 3}, {"contents": " "},
            {"title": "", "text": " "}, {}, [1]]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(TaskError) as caught:
        load_corpus(path)
    needs = "a document needs contents, or title and text, as texts; found"
    assert str(caught.value).split("\n") == [
        f"{path}: 6 of 7 rows cannot be used as documents of a corpus; remove or repair them:",
        f"{path}:2: {needs} title",
        f"{path}:3: contents must be text, it is a number",
        f"{path}:4: contents is empty",
        f"{path}:5: title and text are both empty",
        f"{path}:6: {needs} no key",
        f"{path}: and 1 more",
    ]
