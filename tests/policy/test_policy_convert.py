"""GGUF files become folders that a trial can train from; whatever else is refused in a line."""

import json

import pytest
import torch
from gguf_file import TEXTS, write_gguf

from rltune.errors import InputError
from rltune.policy.convert import convert
from rltune.policy.load import load_policy
from rltune.policy.render import ChatRenderer

pytest.importorskip("gguf", reason="reads GGUF files: pip install 'rltune[smollm]'")


def load(folder, **changes):
    arguments = {"dtype": "float32", "template": "auto", "is_bare": False, "env_kind": "sokoban"}
    return load_policy(str(folder), **arguments, device="cpu", **changes)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    tensors = write_gguf(folder / "small.gguf")
    return tensors, convert(str(folder / "small.gguf"), folder / "out"), folder / "out"


def test_the_weights_are_those_of_the_file(converted):
    tensors, made, folder = converted
    policy = load(folder)
    assert policy.weights_sha256 == made.weights_sha256
    assert made.parameters == sum(tensor.size for tensor in tensors.values())
    model = policy.model.base_model
    for ours, theirs in (
        (model.embed_tokens.weight, "token_embd.weight"),
        (model.norm.weight, "output_norm.weight"),
        (model.layers[0].mlp.down_proj.weight, "blk.0.ffn_down.weight"),
    ):
        assert torch.equal(ours, torch.from_numpy(tensors[theirs]))


def test_the_tokenizer_and_the_template_come_along(converted):
    _, made, folder = converted
    policy = load(folder)
    assert made.has_template
    assert isinstance(policy.renderer, ChatRenderer)
    text = "ab a b~"
    ids = policy.tokenizer.encode(text, add_special_tokens=False)
    assert [TEXTS[i] for i in ids] == ["ab", "Ġ", "a", "Ġ", "b", "~"]
    assert policy.tokenizer.decode(ids) == text
    assert policy.end_ids == (0,)


def test_the_folder_holds_no_pickle_and_says_what_it_was_made_from(converted):
    *_, folder = converted
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "config.json", "converted.json"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    assert json.loads((folder / "converted.json").read_text())["source"] == "small.gguf"
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []


def test_what_is_no_gguf_file_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"^SOURCE: 'nowhere\.gguf' is not a file\. Allowed: smol"):
        convert("nowhere.gguf", tmp_path / "out")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(
        InputError, match=r"text\.gguf cannot be converted: .* Use another model\.$"
    ):
        convert(str(tmp_path / "text.gguf"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["text.gguf"]


def test_a_torn_gguf_file_is_refused(tmp_path):
    path = tmp_path / "torn.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(InputError, match=r"torn\.gguf cannot be converted"):
        convert(str(path), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["torn.gguf"]
