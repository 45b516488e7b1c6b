"""A file that cannot be used says where, what was found, and what is allowed."""

import json

import pytest
from test_envs_qa_files import BAMBOOGLE, COLUMNS, GOLDEN, MUSIQUE, ORIGINAL, SILVER, WIKI2, write

from rltune_envs.errors import TaskError
from rltune_envs.multihop_qa.files import load_questions


def refused(path, **options):
    with pytest.raises(TaskError) as caught:
        load_questions(path, **options)
    return str(caught.value)


def without(row, key):
    return {one: value for one, value in row.items() if one != key}


def step(**changes):
    first, *rest = MUSIQUE["question_decomposition"]
    return {**MUSIQUE, "question_decomposition": [{**first, **changes}, *rest]}


def paragraph(row, **changes):
    first, *rest = row["paragraphs"]
    return {**row, "paragraphs": [{**first, **changes}, *rest]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (without(ORIGINAL, "answer"), "the key 'answer' is missing; found _id, question, type, "
         "level, supporting_facts, context"),
        ({**ORIGINAL, "answer": ["Ulm"]}, "answer must be text, it is a list"),
        ({**ORIGINAL, "answer": None}, "answer must be text, it is null"),
        ({**ORIGINAL, "answer": " "}, "answer is empty"),
        ({**ORIGINAL, "answer": "The ..."},
         "the answer 'The ...' is empty once punctuation and articles are dropped"),
        ({**ORIGINAL, "question": ""}, "question is empty"),
        ({**ORIGINAL, "_id": 1.5}, "_id must be text or a number, it is a number"),
        ({**ORIGINAL, "_id": True}, "_id must be text or a number, it is true"),
        ({**ORIGINAL, "supporting_facts": [["Bonn", 0], ["Ulm", 1]]},
         "the supporting title 'Bonn' is not among its passages; full-wiki rows need file_format "
         "hotpotqa_fullwiki"),
        ({**ORIGINAL, "context": [*ORIGINAL["context"], ["Ada Bell", ["Another one."]]]},
         "the supporting title 'Ada Bell' is that of 2 different passages, so that the evidence "
         "is ambiguous; give them different titles"),
        ({**ORIGINAL, "supporting_facts": []}, "it names no supporting passage"),
        ({**ORIGINAL, "supporting_facts": ["Ulm"]},
         "supporting_facts must hold pairs that begin with a title, it holds text"),
        ({**ORIGINAL, "supporting_facts": "Ulm"}, "supporting_facts must be a list, it is text"),
        ({**ORIGINAL, "context": []}, "context holds no passage"),
        ({**ORIGINAL, "context": [["Ulm", "It."]]},
         "the sentences of context must be a list, it is text"),
        ({**ORIGINAL, "context": [["Ulm", ["It.", 3]]]},
         "the sentences of context must be a list of texts, it holds a number"),
        ({**COLUMNS, "context": {"title": ["Ulm", "Bonn"], "sentences": [["It."]]}},
         "context has 2 titles and 1 sentence lists"),
        ({**COLUMNS, "supporting_facts": {"sent_id": [0]}},
         "the key 'title' is missing; found sent_id"),
        ({**MUSIQUE, "answerable": False}, "answerable is false: its passages do not hold the "
         "answer; use the answerable rows only"),
        ({**MUSIQUE, "id": "2hop__7_8"}, "id says 2hop, question_decomposition has 3 steps"),
        ({**MUSIQUE, "question_decomposition": []}, "question_decomposition is empty"),
        ({**MUSIQUE, "question_decomposition": [3]},
         "a row must be a JSON object, this is a number"),
        (step(paragraph_support_idx=9), "paragraph_support_idx 9 is not among its paragraphs"),
        (step(paragraph_support_idx=None),
         "paragraph_support_idx must be a whole number, it is null"),
        (step(answer=""), "answer is empty"),
        (paragraph(MUSIQUE, idx=True), "idx must be a whole number, it is true"),
        ({**MUSIQUE, "answer_aliases": "Kay"}, "answer_aliases must be a list, it is text"),
        ({**WIKI2, "evidences": [["a", "b"]]}, "evidences must hold triples, it holds a list of 2"),
        ({**WIKI2, "evidences": [[1, 2, 3]]},
         "evidences must be a list of texts, it holds a number"),
        ({**SILVER, "paragraphs": []}, "it names no supporting passage"),
        (paragraph(SILVER, title=""), "title is empty"),
        ({**BAMBOOGLE, "answer": []}, "answer is an empty list"),
        (without(BAMBOOGLE, "answer"), "the key 'answer' is missing; found Question, id"),
        ({**GOLDEN, "golden_answers": "Ulm"}, "golden_answers must be a list, it is text"),
        ({**GOLDEN, "golden_answers": [3]}, "golden_answers must be a list of texts, it holds a "
         "number"),
        ({**GOLDEN, "golden_answers": ["The", "."]}, "golden_answers ['The', '.'] holds no answer "
         "with a word once punctuation and articles are dropped"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_used_gives_its_reason(tmp_path, row, reason):
    path = write(tmp_path, row)
    _, line = refused(path).split("\n")
    assert line == f"{path}:1: {reason}"


def test_rows_that_cannot_be_used_are_counted_and_five_are_named(tmp_path):
    bad = [{**ORIGINAL, "_id": str(i), "answer": ""} for i in range(6)]
    path = write(tmp_path, ORIGINAL, *bad)
    head = f"{path}: 6 of 7 rows cannot be used as hotpotqa questions; remove or repair them:"
    named = [f"{path}:{i}: answer is empty" for i in range(2, 7)]
    assert refused(path).split("\n") == [head, *named, f"{path}: and 1 more"]


def test_a_repeated_id_is_refused(tmp_path):
    path = write(tmp_path, ORIGINAL, {**COLUMNS, "id": "x"}, ORIGINAL)
    assert refused(path).endswith(f"{path}:3: its id '5a7' is row 1's already")


def test_a_later_row_of_another_kind_names_the_missing_key(tmp_path):
    path = write(tmp_path, MUSIQUE, ["no", "row"], ORIGINAL)
    lines = refused(path).split("\n")
    assert lines[1] == f"{path}:2: a row must be a JSON object, this is a list"
    assert lines[2].startswith(f"{path}:3: the key 'paragraphs' is missing; found _id, question")


def test_unknown_keys_name_all_formats(tmp_path):
    path = write(tmp_path, {"q": "?", "a": "!"})
    assert refused(path) == (
        f"{path}:1: its keys a, q are those of no format. The formats and their keys: hotpotqa "
        "(context, supporting_facts); musique (paragraphs, question_decomposition); 2wiki "
        "(context, evidences, supporting_facts or kind, paragraphs); bamboogle (Question); "
        "golden_answers (golden_answers); hotpotqa_fullwiki (supporting_facts). Give file_format "
        "for an error that names the missing key."
    )


def test_a_named_format_says_which_key_is_missing(tmp_path):
    path = write(tmp_path, without(ORIGINAL, "context"))
    assert "the key 'context' is missing; found _id" in refused(path, file_format="hotpotqa")


def test_an_unknown_format_name_lists_the_choices(tmp_path):
    with pytest.raises(ValueError, match="file_format is 'hotpot'; choose one of") as caught:
        load_questions(tmp_path / "none.json", file_format="hotpot")
    assert str(caught.value) == (
        "file_format is 'hotpot'; choose one of auto, hotpotqa, musique, 2wiki, "
        "bamboogle, golden_answers, hotpotqa_fullwiki. Did you mean 'hotpotqa'?"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "{path}: holds no row; it must be a JSON list, or one JSON object a line"),
        (b"[]", "{path}: holds no row; it must be a JSON list, or one JSON object a line"),
        (b"[1, ", "{path}: begins as a JSON list but is not one: Expecting value: line 1 column 5"),
        (b"[" * 200_000, "{path}: begins as a JSON list but is not one: "),
        (b"# METADATA: x", "{path}:1: this line is not JSON: Expecting value"),
        (b'{"a": 1}\n\n{"a"', "{path}:3: this line is not JSON: "),
        (b'{\n "data": []\n}', "{path}:1: this line is not JSON: "),
        (b"[3]", "{path}:1: a row must be a JSON object, this is a number"),
        (
            b'{"a": 1}\n{"a": ["x\\uD83D"]}',
            "{path}:2: it holds U+D83D, half of a character; repair",
        ),
        (b'[{"a\\ud83d": 1}]', "{path}:1: it holds U+D83D, half of a character; repair it"),
        (b'[{"a": "\\ud83d\\ude00"}]', "{path}:1: "),
        (b"\xff\xfe", "{path}: is not UTF-8 text; save it as UTF-8: "),
    ],
)
def test_a_file_that_is_none_of_rows(tmp_path, content, message):
    path = tmp_path / "q.json"
    path.write_bytes(content)
    assert refused(path).startswith(message.format(path=path))


def test_a_missing_file(tmp_path):
    path = tmp_path / "none.json"
    assert refused(path) == f"{path}: cannot be read: No such file or directory"


def test_rows_keep_the_order_of_the_file(tmp_path):
    rows = [{**ORIGINAL, "_id": f"q{i}"} for i in range(20)]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert [one.question_id for one in load_questions(path)] == [f"q{i}" for i in range(20)]
