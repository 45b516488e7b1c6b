"""Named evaluation sets in a config: short and long form, and what is refused."""

import pytest
from cases import each
from pydantic import ValidationError

from rltune.report.render_check import held_values
from rltune.spec.keys import config_keys, is_config_key
from rltune.spec.schema.env import MultihopQaConfig


def config(**sets):
    return MultihopQaConfig(questions="train.jsonl", eval=sets)


def test_a_path_is_short_for_a_file_of_any_known_format():
    long = {"file": "nq.jsonl", "file_format": "auto"}
    assert config(nq="nq.jsonl") == config(nq=long)
    assert config(nq="nq.jsonl").model_dump()["eval"] == {"nq": long}
    assert MultihopQaConfig().eval == {}


def test_its_names_are_free_keys():
    assert is_config_key("env.eval.nq")
    assert [key for key in config_keys() if key.startswith("env.eval")] == ["env.eval"]


@each(
    ("sets", "said"),
    [
        ({"n-q": "a"}, "'n-q' cannot be the name of a set: it becomes part of metric names. Use "
         "letters, digits and _, and neither of macro, failure."),
        ({"macro": "a"}, "'macro' cannot be the name of a set"),
        ({"nq": "train.jsonl"}, "'train.jsonl' is the file of env.questions too. Give env.eval.nq "
         "a file of its own."),
        ({"a": "x", "b": "x"}, "'x' is the file of env.eval.a too. Give env.eval.b a file of its "
         "own."),
        ({f"s{i}": f"{i}" for i in range(101)}, "101 sets. Give at most 100."),
        ({"nq": {"file": "a", "format": "auto"}}, "eval.nq.format"),
        ({"nq": {"file": "a", "file_format": "nq"}}, "Input should be 'auto', 'hotpotqa'"),
        ({"nq": 3}, "eval.nq"),
        ({"nq": ""}, "eval.nq.file"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(sets, said):
    with pytest.raises(ValidationError) as caught:
        config(**sets)
    assert said in str(caught.value)


QA = (
    ("base: sokoban", "base: multihop_qa"),
    ("hold:\n", "hold:\n  env.questions: train.jsonl\n  policy.model: own\n"),
)


def sweep(sets):
    return (*QA, ("  loss.kl_type", f"  env.eval: {sets}\n  loss.kl_type"))


@pytest.mark.parametrize("sets", ["{nq: nq.jsonl}", "{nq: {file: nq.jsonl}}"])
def test_a_held_set_is_held_in_either_form(load, problems, sets):
    loaded = load(*sweep(sets))
    assert [key for key in loaded.held_keys if "eval" in key] == ["env.eval.nq.file"]
    assert held_values(loaded)["env.eval.nq.file"] == "nq.jsonl"
    (said,) = problems(*sweep(sets), overrides=["env.eval.nq=other.jsonl"])
    assert said.startswith("--set env.eval.nq=other.jsonl: 'env.eval.nq.file' is held by this swe")


def test_a_later_layer_changes_the_file_and_keeps_the_format(load):
    change = "{nq: {file_format: golden_answers}}"
    loaded = load(*sweep(change), overrides=["env.eval.nq=nq.jsonl"])
    assert loaded.control.config["env"]["eval"] == {
        "nq": {"file": "nq.jsonl", "file_format": "golden_answers"}
    }


@pytest.mark.parametrize("name", ["nq", "file"])
def test_a_wrong_key_of_a_set_is_told_with_the_right_ones(problems, name):
    missing, strange = problems(*sweep(f"{{{name}: {{fil: nq.jsonl}}}}"))
    assert f"hold.env.eval.{name}.file: 'file' is missing from env.eval.{name}. File of" in missing
    assert strange == (
        f"toy.yaml:8: hold.env.eval.{name}.fil: 'fil' is not a key of env.eval.{name}. Choose one "
        "of file, file_format. Did you mean 'file'?"
    )
