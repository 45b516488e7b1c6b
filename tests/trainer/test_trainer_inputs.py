"""Which files a config reads."""

import sys
from pathlib import Path

import pytest

from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.inputs import inputs_of, task_inputs


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A working folder with data, modules, a model and an adapter."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "work"
    for name in (
        *("levels.txt", "data/questions.json", "data/corpus.jsonl", "i_env.py", "i_help.py"),
        *("model/config.json", "model/model.safetensors", "adapter/adapter_config.json"),
        *("index/a.bin", "index/deep/b.bin", "other.txt", "../outside.txt"),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import i_help" if name == "i_env.py" else name, encoding="utf-8")
    return folder


def config_of(**sections):
    return TrialConfig.model_validate({"policy": {"model": "some/hub-id"}, **sections})


def own(**arguments):
    return {"kind": "custom", "factory": "i_env:Env", "arguments": arguments}


CODE = {"i_env.py", "i_help.py"}


@pytest.mark.parametrize(
    ("sections", "names"),
    [
        ({}, set()),
        ({"env": {"kind": "sokoban", "levels": "levels.txt"}}, {"levels.txt"}),
        (
            {
                "env": {
                    "kind": "multihop_qa",
                    "questions": "data/questions.json",
                    "corpus": "data/corpus.jsonl",
                }
            },
            {"data/questions.json", "data/corpus.jsonl"},
        ),
        ({"policy": {"model": "model"}}, {"model/config.json", "model/model.safetensors"}),
        ({"policy": {"model": "some/hub-id"}}, set()),
        (
            {"policy": {"model": "some/hub-id", "lora": {"rank": 1, "init": "adapter"}}},
            {"adapter/adapter_config.json"},
        ),
        ({"env": own()}, CODE),
        ({"reward": {"terms": [{"score": "i_help:score"}]}}, {"i_help.py"}),
        ({"advantage": {"kind": "custom", "estimator": "i_help:f"}}, {"i_help.py"}),
        ({"env": own(file="levels.txt", n=3, word="Up")}, {*CODE, "levels.txt"}),
        ({"env": own(files={"x": ["other.txt", "./data/questions.json"]})},
         {*CODE, "other.txt", "data/questions.json"}),
        ({"env": own(index="index")}, {*CODE, "index/a.bin", "index/deep/b.bin"}),
        ({"env": own(rules="i_env:Rules")}, CODE),
        ({"env": {"kind": "verifiers", "id": "me/i-env@1.0"}}, CODE),
        ({"env": own(root=".", up="..", far="/", long="x" * 5000, none="\0", empty="")}, CODE),
        (
            {"advantage": {"kind": "custom", "estimator": "i_help:f",
                           "arguments": {"table": "other.txt"}}},
            {"i_help.py", "other.txt"},
        ),
    ],
)  # fmt: skip
def test_every_file_of_a_config_is_found(base, sections, names):
    found = inputs_of(config_of(**sections), base)
    assert set(found) == names
    assert all(len(digest) == 64 for digest in found.values())


def test_a_file_outside_keeps_its_whole_path(base):
    outside = str((base / "../outside.txt").resolve())
    for given in ("../outside.txt", outside):
        assert list(inputs_of(config_of(env={"kind": "sokoban", "levels": given}), base)) == [
            outside
        ]


def test_names_do_not_depend_on_the_folder_of_the_process(base, monkeypatch):
    config = config_of(env=own(file="levels.txt"))
    monkeypatch.chdir(base)
    here = inputs_of(config, Path())
    monkeypatch.chdir("/")
    assert inputs_of(config, base) == here


def test_scratch_and_home_are_no_data(base, monkeypatch):
    scratch, home = base / "scratch", base / "home"
    for folder in (scratch, home):
        folder.mkdir()
        (folder / "big").write_text("big")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert set(inputs_of(config_of(env=own(a="scratch", b="~", c=str(home))), base)) == CODE


def test_frozen_tasks_do_not_depend_on_the_model(base):
    config = config_of(env={"kind": "sokoban", "levels": "levels.txt"}, policy={"model": "model"})
    assert set(task_inputs(config, base)) == {"levels.txt"}
