"""Models by name: what is refused before anything starts."""

import json
import os
import subprocess
import sys

import pytest
from patience import HANG_S
from run_folders import SWEEP, write_sweep

from rltune.errors import InputError


def sweep_with(folder, **policy):
    held = "".join(f"  policy.{key.replace('__', '.')}: {value}\n" for key, value in policy.items())
    held += "  env.prompt: natural\n"
    return write_sweep(folder, SWEEP.replace("hold:\n", f"hold:\n{held}", 1))


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        (
            {"model": "my/model.gguf"},
            "hold.policy.model: 'my/model.gguf' is a GGUF file, which holds rounded weights for "
            "inference. rltune convert my/model.gguf --out FOLDER, and give the folder.",
        ),
        (
            {"model": "./nowhere"},
            "hold.policy.model: './nowhere' is not a folder. Allowed: tiny, a folder with "
            "config.json and weights in safetensors, a hub id, or trial:RUN/TRIAL. Check the path.",
        ),
        (
            {"model": "a/b", "lora__rank": 2, "lora__init": "adapter"},
            "hold.policy.lora.init: 'adapter' is not a folder. Allowed: default, or a folder with "
            "an adapter saved by peft. Check the path.",
        ),
    ],
)
def test_a_check_refuses_what_is_not_there(rltune, tmp_path, policy, line):
    result = rltune("check", str(sweep_with(tmp_path, **policy)))
    assert result.code == 2
    (said,) = result.err.splitlines()
    assert said.endswith(line)


def test_a_check_names_every_file_of_a_folder_that_is_not_whole(rltune, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("")
    result = rltune("check", str(sweep_with(tmp_path, model="mine")))
    assert result.code == 2
    said = [line.partition("hold.policy.model: ")[2] for line in result.err.splitlines()]
    assert [line.partition(". ")[0] for line in said] == [
        f"'mine' cannot be loaded: {fault}"
        for fault in (
            "config.json is empty",
            "tokenizer.json is missing",
            "model.safetensors is missing",
        )
    ]


def test_a_check_refuses_an_adapter_of_another_base(rltune, tmp_path):
    (tmp_path / "adapter").mkdir()
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 16.0, "base_model_name_or_path": "a/c"}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    sweep = sweep_with(tmp_path, model="a/b", lora__rank=2, lora__init="adapter")
    result = rltune("check", str(sweep))
    assert result.code == 2
    assert "it was made for the base model 'a/c', and policy.model is 'a/b'." in result.err


def test_a_check_does_not_ask_for_a_hub_id(rltune, tmp_path):
    assert rltune("check", str(sweep_with(tmp_path, model="Some/model"))).code == 0


@pytest.mark.slow
def test_a_sweep_over_a_model_that_cannot_be_had_starts_nothing(tmp_path):
    """The hub is a port that no one listens at, and the cache an empty folder."""
    sweep = sweep_with(tmp_path, model="Some/model")
    command = "from rltune.cli import main; main()"
    place = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", command, "sweep", str(sweep), "--runs-dir", str(tmp_path / "runs")],
        cwd=tmp_path,
        env={**os.environ, **place, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert (
        "hold.policy.model: 'Some/model' is neither a folder here nor in the Hugging Face" in line
    )
    assert "the hub does not provide it (" in line
    assert line.endswith("`hf download Some/model` where there is one and give the folder.")
    assert not list((tmp_path / "runs").glob("*/trials/*/*"))


def test_convert_writes_into_no_folder_that_exists(rltune, tmp_path):
    (tmp_path / "old").mkdir()
    result = rltune("convert", "smollm2", "--out", "old")
    assert (result.code, result.err) == (2, "error: --out old: it exists. Give a new folder.\n")


def test_a_conversion_that_is_interrupted_leaves_nothing(rltune, tmp_path, monkeypatch):
    def stopped(source, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("rltune.policy.convert.convert", stopped)
    assert rltune("convert", "smollm2", "--out", "new").code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_blamed_on_the_model(rltune, tmp_path, monkeypatch):
    def full(*_):
        raise InputError("SOURCE: x cannot be converted: No space left on device. Use another.")

    monkeypatch.setattr("rltune.policy.convert.convert", full)
    result = rltune("convert", "smollm2", "--out", "new")
    assert result.err.startswith("error: --out new: no space is left on its disk (")
