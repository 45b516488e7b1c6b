"""The bad-input table: one message each, with file, row, column and what to do."""

import json
import os
import sys
from pathlib import Path

import pytest

from rltune_envs.errors import ImportPathError, TaskError
from rltune_envs.guard_batch import new_batch
from rltune_envs.guard_process import processes
from rltune_envs.verified_task import VerifiedTaskEnv

CALLS = Path(__file__).with_name("verifier_calls.py")
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
    "no number at all": ("p.jsonl", lines({**GOOD, "answer": float("nan")}), {},
                         FIRST + "{f}:1: answer is nan; give text or a number"),
    "no column": (
        "p.jsonl", lines({"the question": "1 + 1?", "answer": "2"}), {"template": "{a question}"},
        FIRST + "{f}:1: env.template shows none of its columns (the question, answer), so that all "
        "rows would ask the same; put the name of one in braces",
    ),
    "long list": (
        "p.jsonl", lines({**GOOD, "facts": ["x"] * 27}), {"template": "{question} {facts}"},
        FIRST + "{f}:1: facts has 27 texts; at most 26 can be shown with letters",
    ),
    "two tests": (
        "p.jsonl", lines({**GOOD, "id": 1, "test": "a"}, {**GOOD, "id": 2, "test": "b"}),
        {"answer_column": None, "id_column": "id", "verifier": {"kind": "verifier_calls:right"}},
        "p.jsonl:2: it asks the same as p.jsonl:1, with another test, which its verifier may read; "
        "remove one of them, or show what differs in env.template",
    ),
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
    env = VerifiedTaskEnv(**{"train": str(path), "verifier": {"kind": "number"}, **options})
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


RANGE = "return a number from 0 to 1, or a bool"
BAD_SCORES = {
    "nan": f"it returned nan; {RANGE}",
    "none": f"it returned None; {RANGE}",
    "two": f"it returned 2.0; {RANGE}",
    "huge": f"it returned something of type int; {RANGE}",
    "unwritable": f"it returned something of type Unwritable; {RANGE}",
    "raises": "it raised KeyError: 'nothing' ({calls}:{line}, in raises)",
    "hangs": "it did not return within 0.2 s ({calls}:{line}, in hangs)",
    "runaway": "it did not return within 0.2 s ({calls}:{line}, in runaway)",
    "crashes": "its process ended with exit status 7",
    "forks_here": "it forked this process, whose copy holds the model; use subprocess, or "
    "multiprocessing with the start method spawn",
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.syspath_prepend(CALLS.parent)
    new_batch()
    yield
    new_batch()
    processes().end()


def env_with(tmp_path, name):
    path = tmp_path / "p.jsonl"
    path.write_text(lines(GOOD))
    return VerifiedTaskEnv(train=str(path), verifier={"kind": f"verifier_calls:{name}"})


def step_of(tmp_path, name, response):
    env = env_with(tmp_path, name)
    env.reset(seed=0)
    return env.step(response)


@pytest.mark.parametrize("name", BAD_SCORES)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_bad_score_is_a_fault(tmp_path, name):
    step = step_of(tmp_path, name, "2")
    assert (step.reward, step.success, step.has_ended, step.failure_class) == (
        0.0, False, True, "fault"
    )  # fmt: skip
    line = CALLS.read_text().split(f"def {name}(")[0].count("\n") + 2
    cause = BAD_SCORES[name].format(calls=CALLS, line=line)
    assert step.fault == f"verifier {name}() on p.jsonl:1: {cause}"


def test_a_score_that_forks_in_its_process_answers_once(tmp_path):
    assert step_of(tmp_path, "forks", "2").success
    assert step_of(tmp_path, "right", "2").success


def test_a_score_says_that_it_wants_no_process(tmp_path):
    for name in ("process", "thread"):
        assert step_of(tmp_path, name, str(os.getpid())).success


def test_a_score_cannot_change_the_row(tmp_path):
    env = env_with(tmp_path, "changes_the_row")
    env.reset(seed=0)
    env.step("7")
    assert env.gold(0)["row"] == GOOD


def test_a_regular_expression_that_runs_away_is_a_fault(tmp_path, monkeypatch):
    path = tmp_path / "p.jsonl"
    path.write_text(lines(GOOD))
    env = VerifiedTaskEnv(train=str(path), verifier={"kind": "regex", "pattern": "((?:a+)+)$"})
    env.reset(seed=0)
    with monkeypatch.context() as short:
        short.setattr(sys.modules["rltune_envs.verifiers.regex"], "LIMIT_S", 0.2)
        fault = env.step("a" * 60 + "b").fault
    assert fault.startswith("verifier regex '((?:a+)+)$': it did not return within 0.2 s (")
    env.reset(seed=0)
    assert env.step("aa").failure_class == "wrong"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("two_arguments", "cannot be called with (prompt, response, row): too many positional "
         "arguments; it is defined with (prompt, response)"),
        ("waits", "is a coroutine; define it with def, not async def"),
    ],
)  # fmt: skip
def test_a_score_that_can_never_be_called_is_refused_at_once(tmp_path, name, why):
    with pytest.raises(ImportPathError) as caught:
        env_with(tmp_path, name)
    assert str(caught.value) == f"'verifier_calls:{name}' {why}"


def test_a_score_of_ones_own(tmp_path):
    assert step_of(tmp_path, "right", "2").success
    assert step_of(tmp_path, "right", "3").failure_class == "wrong"
