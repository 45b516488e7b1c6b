"""The bad-input table: one message each, with file, row, column and what to do."""

import json
import math
import os
import sys
import time

import pytest

from rltune_envs.errors import TaskError
from rltune_envs.verified_task import VerifiedTaskEnv

GOOD = {"question": "1 + 1?", "answer": "2"}
OTHER = {"question": "1 + 2?", "answer": "3"}


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


FIRST = "{f}: 1 of {n} rows cannot be used as problems; remove or repair them:\n"
BAD_FILES = {
    "missing column": (
        "p.jsonl", lines(GOOD, {"question": "?"}), {},
        FIRST + "{f}:2: the column 'answer' (env.answer_column) is missing; the row has question.",
    ),
    "misspelt column": (
        "p.jsonl", lines(GOOD), {"template": "{questoin}"},
        FIRST + "{f}:1: the column 'questoin' (in env.template) is missing; the row has question, "
        "answer. Did you mean 'question'?",
    ),
    "empty file": ("p.jsonl", "", {}, "{f}: holds no row; it must be a JSON list, or one JSON "
                   "object a line"),
    "empty CSV": ("p.csv", "question,answer\n", {}, "{f}: holds no row; give a file with one row "
                  "for each problem"),
    "no JSON": ("p.jsonl", "1 + 1\n", {}, "{f}:1: this line is not JSON: Extra data: line 1 column "
                "3 (char 2). A file must be one JSON list, or one JSON object a line"),
    "no object": ("p.jsonl", lines(GOOD, [1]), {}, FIRST + "{f}:2: a row must be a JSON object, "
                  "this is a list"),
    "duplicate ids": (
        "p.jsonl", lines({**GOOD, "id": 7}, {**OTHER, "id": 7}), {"id_column": "id"},
        FIRST + "{f}:2: its id '7' is row 1's already; give it another",
    ),
    "mixed types": (
        "p.jsonl", lines(GOOD, {**OTHER, "answer": 3}), {},
        FIRST + "{f}:2: answer is a number, in row 1 it is text; write it as text in all rows",
    ),
    "no answer": ("p.jsonl", lines(GOOD, {**OTHER, "answer": None}), {},
                  FIRST + "{f}:2: answer is empty (null); give text or a number"),
    "blank answer": ("p.csv", "question,answer\n1 + 1?, \n", {},
                     FIRST + "{f}:1: answer is empty; give text or a number"),
    "two answers": (
        "p.jsonl", lines(GOOD, {**GOOD, "answer": "3"}), {},
        "p.jsonl:2: it asks the same as p.jsonl:1, with the answer '3' in place of '2'; remove or "
        "repair one of them",
    ),
    "unquoted comma": ("p.csv", "question,answer\n1, 1?,2\n", {}, FIRST + "{f}:1: it has 3 fields, "
                       "the header 2; put text with a comma in double quotes"),
    "repeated column": ("p.csv", "question,question\nx,y\n", {}, "{f}: its header names the column "
                        "'question' twice; give each column a name of its own"),
    "unknown suffix": ("p.txt", "x", {}, "{f}: .txt is not known; give one of .jsonl, .json, .csv "
                       "and .parquet"),
    "no number": ("p.jsonl", lines({**GOOD, "answer": "two"}), {}, FIRST + "{f}:1: the answer "
                  "'two' is not one number; give a number, or take another verifier (boxed, "
                  "exact)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file(tmp_path, name):
    file, text, options, message = BAD_FILES[name]
    path = tmp_path / file
    path.write_text(text)
    env = VerifiedTaskEnv(train=str(path), verifier={"kind": "number"}, **options)
    with pytest.raises(TaskError) as caught:
        env.reset(seed=0)
    n = len(text.splitlines()) - text.startswith("question,")
    assert str(caught.value) == message.format(f=path, n=n)


def test_a_row_in_two_splits(tmp_path):
    for part in ("train", "heldout"):
        (tmp_path / f"{part}.jsonl").write_text(lines(OTHER, GOOD)[(part == "heldout") * 36 :])
    (tmp_path / "heldout.jsonl").write_text(lines(GOOD))
    files = {part: str(tmp_path / f"{part}.jsonl") for part in ("train", "heldout")}
    with pytest.raises(TaskError) as caught:
        VerifiedTaskEnv(**files, verifier={"kind": "number"}).reset(seed=0)
    assert str(caught.value) == (
        "heldout.jsonl:1: this problem of heldout is also in train, as train.jsonl:2; remove it "
        "from one of the files: what is trained on must not be measured on"
    )


def test_a_file_that_is_not_there(tmp_path):
    path = tmp_path / "p.csv"
    with pytest.raises(TaskError) as caught:
        VerifiedTaskEnv(train=str(path), verifier={"kind": "number"}).reset(seed=0)
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def nan(prompt, response, row):
    return math.nan


def none(prompt, response, row):
    return None


def two(prompt, response, row):
    return 2.0


def raises(prompt, response, row):
    return row["nothing"]


def hangs(prompt, response, row):
    time.sleep(5)


hangs.time_limit_s = 0.05


def forks(prompt, response, row):
    if (child := os.fork()) == 0:
        return 1.0
    os.waitpid(child, 0)
    return 1.0


def right(prompt, response, row):
    return prompt == "1 + 1?" and response == row["answer"]


BAD_SCORES = {
    "nan": "it returned nan; return a number from 0 to 1, or a bool",
    "none": "it returned None; return a number from 0 to 1, or a bool",
    "two": "it returned 2.0; return a number from 0 to 1, or a bool",
    "raises": "it raised KeyError: 'nothing'",
    "hangs": "it did not return within 0.05 s",
    "forks": "it forked this process, whose copy holds the model; use subprocess, or "
    "multiprocessing with the start method spawn",
}


def env_with(tmp_path, name):
    sys.modules.setdefault("test_envs_verified_task_errors", sys.modules[__name__])
    path = tmp_path / "p.jsonl"
    path.write_text(lines(GOOD))
    kind = f"test_envs_verified_task_errors:{name}"
    return VerifiedTaskEnv(train=str(path), verifier={"kind": kind})


@pytest.mark.parametrize("name", BAD_SCORES)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_bad_score_is_a_fault(tmp_path, name):
    env = env_with(tmp_path, name)
    env.reset(seed=0)
    step = env.step("2")
    assert (step.reward, step.success, step.has_ended, step.failure_class) == (
        0.0, False, True, "fault"
    )  # fmt: skip
    start = f"verifier {name}() on p.jsonl:1: {BAD_SCORES[name]}"
    assert step.fault.startswith(start)


def test_a_score_of_ones_own(tmp_path):
    env = env_with(tmp_path, "right")
    env.reset(seed=0)
    assert env.step("2").success
    env.reset(seed=0)
    assert env.step("3").failure_class == "wrong"
