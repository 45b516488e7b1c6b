"""What a file of problems is taken for: its columns, and the verifier for its answers."""

import csv
import json

import pytest

from rltune_envs.errors import TaskError
from rltune_envs.verified_task.guess import guess_task


def write(tmp_path, rows, name="p.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def answered(*answers):
    return [{"question": f"q{i}", "answer": answer} for i, answer in enumerate(answers)]


@pytest.mark.parametrize(
    ("answers", "verifier"),
    [
        (["4", "-3", "1,234", "3/4", "50%"], "number"),
        ([4, 2.5], "number"),
        (["$5", "12 apples", "7 km.", "\u22125 °"], "number"),
        (["room 12"], "exact"),
        (["2 + 2 is 4, so\n#### 4", "#### 1,200"], "number"),  # as GSM8K has them
        (["4", r"\frac{1}{2}"], "boxed"),
        (["4", "x^2"], "boxed"),
        ([r"We add them. So it is \boxed{4}, and nothing else.", r"\boxed{5}"], "boxed"),
        (["4", "Paris"], "exact"),
        (["3 or 4"], "exact"),
        (["Paris", "New York City"], "exact"),
    ],
)
def test_the_answers_choose_the_verifier(tmp_path, answers, verifier):
    assert guess_task(write(tmp_path, answered(*answers))).verifier == verifier


@pytest.mark.parametrize(
    ("columns", "question", "answer"),
    [
        (("id", "problem", "solution"), "problem", "solution"),
        (("Prompt", "Target"), "Prompt", "Target"),
        (("problem", "solution", "answer"), "problem", "answer"),  # of MATH: the likeliest name
        (("prompt", "question", "answer"), "question", "answer"),
    ],
)
def test_columns_are_known_by_their_names(tmp_path, columns, question, answer):
    guess = guess_task(write(tmp_path, [dict.fromkeys(columns, "1")]))
    assert (guess.question, guess.answer, guess.columns) == (question, answer, columns)


def test_one_column_is_not_both_question_and_answer(tmp_path):
    path = write(tmp_path, answered("1", "2"))
    with pytest.raises(TaskError) as caught:
        guess_task(path, answer="question")
    assert str(caught.value) == (
        f"{path}: question and answer are both the column 'question'; name another one of "
        "question, answer with --question or --answer"
    )


def test_a_list_of_choices_makes_a_choice(tmp_path):
    rows = [{"question": "q", "options": ["red", "blue"], "answer": "blue"}]
    guess = guess_task(write(tmp_path, rows))
    assert (guess.verifier, guess.choices) == ("multiple_choice", "options")
    rows = [{"question": "q", "options": ["red", "blue"], "answer": "green"}]
    with pytest.raises(TaskError) as caught:
        guess_task(write(tmp_path, rows))
    assert str(caught.value) == (
        "p.jsonl:1: the answer 'green' is none of its choices; give the letter, from A to B"
    )


def test_what_is_said_is_not_guessed(tmp_path):
    path = write(tmp_path, [{"a": "1", "b": "2", "question": "?", "answer": "5"}])
    guess = guess_task(path, question="a", answer="b", verifier="boxed")
    assert (guess.question, guess.answer, guess.verifier) == ("a", "b", "boxed")
    assert guess_task(path, verifier="my_pkg.my_mod:score").verifier == "my_pkg.my_mod:score"


def test_a_csv_file_is_read_too(tmp_path):
    with (tmp_path / "p.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "label"), ("1 + 1, doubled", "4")])
    assert guess_task(str(tmp_path / "p.csv")).verifier == "number"


LONG = "It depends on what you mean by it, and on whom you ask, and when."


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            [{"text": "?", "answer": "1"}],
            {},
            "PATH: none of its columns (text, answer) is named like the question (question, "
            "problem, prompt, query, input, instruction); give --question COLUMN",
        ),
        (
            [{"question": "?", "y": "1"}],
            {},
            "PATH: none of its columns (question, y) is named like the answer (answer, "
            "final_answer, answerkey, solution, target, gold, label, output); give --answer COLUMN",
        ),
        (
            [{"question": "?", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "A"}],
            {},
            "p.jsonl:1: choices must be a list, it is an object; write the choices as a list of "
            "texts, or choose another verifier with --verifier",
        ),
        (
            [{"question": "?", "A": "x", "B": "y", "C": "z", "answer": letter} for letter in "BA"],
            {},
            "PATH: its choices stand in columns of their own (A, B); write them as one column with "
            "a list of texts, in a .jsonl file",
        ),
        (
            answered(LONG),
            {},
            "PATH: the answers in answer are too long to be compared as they stand (the longest "
            "has 65 characters: 'It depends on what you mean by it, and o'...); name another "
            "column with --answer, or write a function of (prompt, response, row) and give "
            "--verifier my_pkg.my_mod:score",
        ),
        (
            answered("1"),
            {"answer": "anser"},
            "PATH: the column 'anser' (--answer) is missing; the row has question, answer. Did "
            "you mean 'answer'?",
        ),
        (
            answered("1", None),
            {},
            "p.jsonl:2: answer is empty (null); give text or a number; name other columns with "
            "--question and --answer, or repair the file",
        ),
        (
            answered("1", "red"),
            {"verifier": "number"},
            "p.jsonl:2: the answer 'red' is not one number; give a number, or take another "
            "verifier (boxed, exact)",
        ),
        (
            answered("1"),
            {"verifier": "regex"},
            "--verifier regex: give one of number, boxed, multiple_choice, exact, or "
            "my_pkg.my_mod:score; what else docs/tasks.md names has keys of its own, which are "
            "written into the sweep file",
        ),
        (
            answered("1"),
            {"verifier": "multiple_choice"},
            "p.jsonl:1: it has 0 choices; from 2 to 26 are needed",
        ),
    ],
)
def test_what_cannot_be_guessed_is_refused_with_the_columns(tmp_path, rows, options, message):
    path = write(tmp_path, rows)
    with pytest.raises(TaskError) as caught:
        guess_task(path, **options)
    assert str(caught.value) == message.replace("PATH", path)
