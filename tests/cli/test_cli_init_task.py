"""`rltune init --task`: from a file of problems to a sweep that checks, runs and reports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]

MODEL = ("--model", "some-model")  # no policy has to be made


def additions(n):
    pairs = [(3 + i % 20, 4 + i // 20) for i in range(n)]
    return [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in pairs]


@pytest.fixture
def init(rltune, tmp_path):
    """Run `init my-task --task p.jsonl` on rows."""

    def call(rows, *arguments):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "p.jsonl").write_text(text)
        return rltune("init", "my-task", "--task", "p.jsonl", *arguments)

    return call


def held(tmp_path):
    return yaml.safe_load((tmp_path / "my-task.yaml").read_text())["hold"]


def test_it_says_what_it_chose(init):
    result = init([{"id": i, **row} for i, row in enumerate(additions(300))], *MODEL)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    split = lines.pop(5)
    assert lines == [
        "p.jsonl: 300 rows, columns id, question, answer",
        "  question  question",
        "  answer    answer",
        "  verifier  number: all answers are numbers",
        "  not used  id",
        "wrote my-task.yaml",
        "Next: rltune check my-task.yaml && rltune sweep my-task.yaml",
    ]
    words = split.split()
    assert sum(int(word) for word in words if word.isdigit()) == 300
    assert words[0] == "split"


def test_it_counts_repeated_rows_and_takes_columns_of_any_name(init, tmp_path):
    rows = [{"The Question": row["question"], "answer": row["answer"]} for row in additions(300)]
    result = init([*rows, rows[7], rows[8]], *MODEL, "--question", "The Question")
    assert (result.code, result.err) == (0, "")
    assert "  left out  2 rows that repeat an earlier one\n" in result.out
    assert held(tmp_path)["env"]["template"].startswith("{The Question}\n")


def test_the_readme_shows_what_is_printed(init):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("$ rltune init my-task --task problems.jsonl\n")[2].partition("\n...")[
        0
    ]
    assert len(shown.splitlines()) == 5
    printed = init(additions(300), *MODEL).out.replace("p.jsonl", "problems.jsonl")
    assert printed.startswith(f"{shown}\n")
    assert json.dumps(additions(1)[0]) in readme


CASES = {
    "boxed": [{"problem": f"{i}?", "answer": rf"\frac{{{i}}}{{7}}"} for i in range(40)],
    "exact": [{"prompt": f"{i}?", "target": f"city {i}"} for i in range(40)],
    "multiple_choice": [
        {"question": f"{i}?", "choices": [f"n{i}", f"m{i}"], "answer": "A"} for i in range(40)
    ],
}


@pytest.mark.parametrize("kind", CASES)
def test_each_verifier_gets_a_sweep_that_checks(init, rltune, tmp_path, kind):
    assert init(CASES[kind], *MODEL).code == 0
    env = held(tmp_path)["env"]
    verifier = env["verifier"]
    assert (verifier if isinstance(verifier, str) else verifier["kind"]) == kind
    checked = rltune("check", "my-task.yaml")
    assert "Comparable: the conditions differ in advantage.kind only." in checked.out, checked.err
    assert "S8.few_rows" in checked.out  # 40 rows


def test_a_verifier_of_ones_own_is_used(init, rltune, tmp_path):
    (tmp_path / "my_grader.py").write_text("def score(prompt, response, row):\n    return 0.5\n")
    rows = [{"text": f"Describe {i}.", "notes": "good " * 30} for i in range(150)]
    columns = ("--question", "text", "--answer", "notes")
    result = init(rows, *MODEL, *columns, "--verifier", "my_grader:score")
    assert "  verifier  my_grader:score: as you said\n" in result.out
    assert held(tmp_path)["env"]["template"] == "{text}"
    assert rltune("check", "my-task.yaml").code == 0


def test_columns_with_odd_names_survive_the_file(init, rltune, tmp_path):
    rows = [{"yes": f"{i}?", "the answer: no": str(i)} for i in range(150)]
    columns = ("--question", "yes", "--answer", "the answer: no")
    assert init(rows, *MODEL, *columns).code == 0
    assert held(tmp_path)["env"]["answer_column"] == "the answer: no"
    assert rltune("check", "my-task.yaml").code == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"text": "?", "y": "1"}],
            "p.jsonl: none of its columns (text, y) is named like the question (question, "
            "problem, prompt, query, input, instruction); give --question COLUMN",
        ),
        (additions(2), "p.jsonl: 2 rows leave none for heldout. Give more; from 100 to train on "
         "they count as enough (S8.few_rows)."),
        ([], "p.jsonl: holds no row; it must be a JSON list, or one JSON object a line"),
    ],
)  # fmt: skip
def test_what_makes_no_task_is_refused(init, tmp_path, rows, message):
    result = init(rows, *MODEL)
    assert (result.code, result.err) == (2, f"error: {message}\n")
    assert not (tmp_path / "my-task.yaml").exists()


def test_nothing_is_overwritten_without_force(init, tmp_path):
    (tmp_path / "my-task.yaml").write_text("mine\n")
    refused = init(additions(100), *MODEL)
    assert (refused.code, refused.err) == (
        2,
        "error: my-task.yaml: exists. Give another name, or replace it with --force.\n",
    )
    assert (tmp_path / "my-task.yaml").read_text() == "mine\n"
    assert init(additions(100), *MODEL, "--force").code == 0


def test_options_of_a_task_need_one(rltune):
    assert rltune("init", "x", "--model", "m", "--answer", "a").err == (
        "error: --model, --answer: is of a file of problems. Give --task FILE.\n"
    )


def test_a_folder_in_place_of_the_sweep_file_is_named(init, tmp_path):
    (tmp_path / "my-task.yaml").mkdir()
    result = init(additions(60), "--force", *MODEL)
    assert (result.code, result.err) == (1, "error: my-task.yaml: Is a directory.\n")


def test_a_file_without_task_is_told_how(rltune, tmp_path):
    (tmp_path / "p.jsonl").write_text("")
    said = "For a sweep over its problems: rltune init NAME --task p.jsonl."
    result = rltune("init", "p.jsonl")
    assert (result.code, result.out) == (2, "")
    assert result.err == f"error: p.jsonl: is a file, not a folder. {said}\n"


def test_an_option_that_is_empty_is_refused(init, tmp_path):
    result = init(additions(60), "--model", "")
    assert (result.code, result.err) == (2, "error: --model: is empty. Leave it out.\n")
    assert not (tmp_path / "my-task.yaml").exists()


def test_a_data_set_without_a_name_is_one_line(rltune):
    result = rltune("init", "n", "--task", "reasoning_gym:", *MODEL)
    (line,) = result.err.splitlines()
    assert line.startswith("error: --task: 'reasoning_gym:' has the wrong form. ")


def test_the_sweep_may_lie_in_a_folder_that_is_made(init, rltune, tmp_path):
    init(additions(150), *MODEL)  # the file
    made = rltune("init", "new/folder/sums", "--task", "p.jsonl", *MODEL)
    assert (made.code, made.out.splitlines()[-2]) == (0, "wrote new/folder/sums.yaml")
    assert rltune("check", "new/folder/sums.yaml").code == 0


def test_without_a_name_it_is_the_files(init, rltune, tmp_path):
    init(additions(150), *MODEL)
    (tmp_path / "p.jsonl").rename(tmp_path / "My Sums (v2).jsonl")
    made = rltune("init", "--task", "My Sums (v2).jsonl", *MODEL)
    assert (made.code, made.out.splitlines()[-2]) == (0, "wrote my-sums-v2.yaml")
    assert rltune("check", "my-sums-v2.yaml").code == 0


def test_a_name_that_no_sweep_can_have(rltune):
    assert rltune("init", "My Task", "--task", "p.jsonl").err == (
        "error: NAME: 'My Task' cannot be the name of a sweep. Use lower case, digits, - and _.\n"
    )


@pytest.mark.slow
def test_a_file_of_300_rows_becomes_a_finished_sweep(init, rltune, tmp_path):
    begun = init(additions(300))
    assert begun.code == 0, begun.err
    assert "wrote my-task-policy/\n" in begun.out
    assert rltune("check", "my-task.yaml").code == 0
    sweep = tmp_path / "my-task.yaml"
    sweep.write_text(sweep.read_text().replace("budget.steps: 20 ", "budget.steps: 2 "))
    # A process of its own: Ray reads once in a process whether clusters have a token.
    command = [sys.executable, "-m", "rltune", "sweep", "my-task.yaml", "--seeds", "0,1"]
    swept = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert swept.returncode == 0, swept.stderr
    assert "Audit passed (4 of 4 trials finished)" in swept.stdout
    assert "floor unknown: compare with start, optimal ceiling 1.000" in swept.stdout
    assert rltune("report").code == 0
    assert rltune("export").code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "figures" / "summary.csv").is_file()


@pytest.mark.slow  # starts a process that imports reasoning-gym
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("gcd", (1024, 256, 256)), ("coin_flip", (128, 32, 32)), ("rubiks_cube", (1024, 256, 256))],
)
def test_a_data_set_becomes_a_sweep_that_checks(rltune, tmp_path, name, sizes):
    result = rltune("init", "my-task", "--task", f"reasoning_gym:{name}", *MODEL)
    assert (result.code, result.err) == (0, "")
    train, heldout, test = sizes
    assert result.out.splitlines() == [
        f"  split     {train} to train on, {heldout} held out, {test} for the test",
        "wrote my-task.yaml",
        "Next: rltune check my-task.yaml && rltune sweep my-task.yaml",
    ]
    env = held(tmp_path)["env"]
    assert (env["source"], env["train_tasks"]) == (f"reasoning_gym:{name}", train)
    assert "<answer>" in env["template"]
    assert rltune("check", "my-task.yaml").code == 0


@pytest.mark.slow
def test_a_data_set_that_does_not_exist(rltune, tmp_path):
    result = rltune("init", "my-task", "--task", "reasoning_gym:gdc", *MODEL)
    assert result.code == 2
    assert result.err.endswith("Did you mean 'gcd'?\n")
    assert not (tmp_path / "my-task.yaml").exists()


def test_a_data_set_has_no_columns(rltune):
    assert rltune("init", "x", "--task", "reasoning_gym:gcd", "--answer", "a").err == (
        "error: --question, --answer, --verifier: are of a file of problems; a data set has its "
        "own question, answer and scorer. Leave them out, or change env in the sweep file that is "
        "written.\n"
    )
