"""Model folders that are not whole: one refusal each, with the file and what to do."""

import json
import re
import shutil

import pytest
import torch
from foreign_models import foreign
from safetensors.torch import load_file, save_file

from rltune.errors import InputError
from rltune.policy.load import load_policy, weights_digest
from rltune.policy.model_folder import folder_problems, stored_tensors
from rltune.policy.read_folder import Reading, require_readable
from rltune.policy.tiny import SHIPPED

UP = "model.layers.0.mlp.up_proj.weight"
AGAIN = "Copy or download the folder again, whole."


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(SHIPPED / "sokoban", tmp_path / "mine")
    return tmp_path / "mine"


def load(folder):
    return load_policy(
        str(folder),
        dtype="float32",
        template="auto",
        is_bare=True,
        env_kind="sokoban",
        device="cpu",
    )


def refusal(folder):
    """Return what the driver says without reading weights, which a trial says as well."""
    problems = list(folder_problems(folder, "mine", "sweep.yaml: policy.model"))
    with pytest.raises(InputError) as error:
        load(folder)
    assert [p.what.partition(": ")[2] for p in problems] == [
        p.what.partition(": ")[2] for p in error.value.problems
    ]
    return "\n".join(map(str, problems))


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def pointer(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


FILES = [  # (what is done to a file, the file, what is said)
    ("unlink", "config.json", r"config\.json is missing\. " + AGAIN),
    ("unlink", "model.safetensors", r"model\.safetensors is missing\. " + AGAIN),
    ("unlink", "tokenizer.json", r"tokenizer\.json is missing\. Save the model's tokenizer"),
    ("empty", "config.json", r"config\.json is empty\. "),
    ("empty", "model.safetensors", r"model\.safetensors is empty\. "),
    ("empty", "tokenizer.json", r"tokenizer\.json is empty\. "),
    ("pointer", "model.safetensors", r"model\.safetensors is a Git LFS pointer, .* `git lfs pull`"),
    ("pointer", "tokenizer.json", r"tokenizer\.json is a Git LFS pointer, .* `git lfs pull`"),
    ("pointer", "config.json", r"config\.json is a Git LFS pointer, .* `git lfs pull`"),
    ("cut", "model.safetensors", r"model\.safetensors is truncated or damaged \(.*\)\. "),
    ("cut", "tokenizer.json", r"tokenizer\.json is truncated or damaged \(.*\)\. "),
    ("cut", "config.json", r"config\.json is truncated or damaged \(.*\)\. "),
    ("cut", "generation_config.json", r"generation_config\.json is truncated or damaged \(.*\)\. "),
    ("cut", "tokenizer_config.json", r"tokenizer_config\.json is truncated or damaged \(.*\)\. "),
]


@pytest.mark.parametrize(("done", "name", "said"), FILES)
def test_a_file_that_is_not_whole_is_named(folder, done, name, said):
    path = folder / name
    if done == "unlink":
        path.unlink()
    elif done == "pointer":
        pointer(path)
    else:
        cut(path, 0 if done == "empty" else path.stat().st_size // 2)

    assert re.fullmatch(
        rf"sweep\.yaml: policy\.model: 'mine' cannot be loaded: {said}.*", refusal(folder)
    )


def test_an_end_that_is_cut_by_one_byte_or_a_byte_too_many_is_seen(folder):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"\0", b"\xff" * 8 + whole[8:], b"<html>" + whole[6:]):
        path.write_bytes(damaged)
        assert "model.safetensors is truncated or damaged" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("config.json", {"model_type": None}, "config.json names no model_type."),
        ("config.json", {"quantization_config": {"bits": 4}}, "config.json has a quantization_con"),
        ("tokenizer.json", None, "tokenizer.json defines no tokenizer"),
    ],
)
def test_what_a_file_says_is_looked_at(folder, name, values, said):
    if values is None:
        (folder / name).write_text("{}")
    else:
        edit(folder / name, **values)
    assert said in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("ends", ["x", [3, "x"], 3.0, True])
def test_an_end_token_that_is_no_id_is_refused(folder, name, ends):
    edit(folder / name, eos_token_id=ends)
    assert f"{name} has the eos_token_id {ends!r}, and token ids are whole numbers" in refusal(
        folder
    )


def test_all_files_are_looked_at_at_once(folder):
    for path in folder.iterdir():
        path.unlink()
    said = refusal(folder).splitlines()
    assert [re.search(r"loaded: (\S+) is missing", line)[1] for line in said] == [
        "config.json", "tokenizer.json", "model.safetensors",
    ]  # fmt: skip


def test_an_adapter_is_no_model(folder):
    (folder / "adapter_config.json").write_text("{}")
    assert "so it is an adapter, or a model with one. Give the base model's folder" in refusal(
        folder
    )


def test_a_tokenizer_that_its_library_cannot_read_is_named(folder):
    edit(folder / "tokenizer.json", model={"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]})
    with pytest.raises(InputError, match=r"policy\.model: .* its tokenizer cannot be read \("):
        load(folder)


def change(**tensors):
    def apply(weights):
        for name, tensor in tensors.items():
            if tensor is None:
                del weights[name]
            else:
                weights[name] = tensor(weights.get(name)) if callable(tensor) else tensor

    return apply


def with_a_hole(value):
    def apply(tensor):
        tensor = tensor.clone()
        tensor[3, 5] = value
        return tensor

    return apply


TENSORS = [
    (change(**{UP: None}), rf"the weights lack 1 tensor \({UP}\) of Qwen2ForCausalLM\. {AGAIN}"),
    (
        change(**{UP: None, "model.norm.weight": None}),
        rf"the weights lack 2 tensors \({UP}, model\.norm\.weight\) of Qwen2ForCausalLM\. ",
    ),
    (
        change(**{"model.layers.9.mlp.up_proj.weight": torch.zeros(2)}),
        r"the weights hold 1 tensor \(model\.layers\.9\..*\) that Qwen2ForCausalLM does not have\.",
    ),
    (
        change(**{UP: torch.zeros(2, 3)}),
        rf"{UP} has the shape \(2, 3\), and Qwen2ForCausalLM needs \(384, 128\)\. Give config",
    ),
    (
        change(**{UP: lambda t: t.to(torch.int8)}),
        rf"model\.safetensors holds {UP} in I8, and weights are one of F16, BF16, F32, F64\. ",
    ),
    (change(**{UP: with_a_hole(torch.nan)}), rf"{UP} holds 1 number that is not finite\. Give "),
    (change(**{UP: with_a_hole(-torch.inf)}), rf"{UP} holds 1 number that is not finite\. Give "),
]


@pytest.mark.parametrize(("damage", "said"), TENSORS)
def test_a_tensor_that_cannot_be_used_is_named(folder, damage, said):
    path = folder / "model.safetensors"
    weights = load_file(path)
    damage(weights)
    save_file(weights, path, metadata={"format": "pt"})
    assert list(folder_problems(folder, "mine")) == []
    with pytest.raises(InputError, match=rf"^policy\.model: '.*' cannot be loaded: {said}"):
        load(folder)


@pytest.mark.slow
def test_the_driver_reads_what_a_trial_would(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(**{UP: with_a_hole(torch.nan)})(weights)
    save_file(weights, path, metadata={"format": "pt"})
    broken = Reading(str(folder), "mine", "a.yaml: policy.model")
    with pytest.raises(InputError) as error:
        require_readable([Reading(str(SHIPPED / "sokoban"), "whole", "policy.model"), broken])
    assert len(error.value.problems) == 1
    assert str(error.value).startswith("a.yaml: policy.model: 'mine' cannot be loaded: ")
    assert f"{UP} holds 1 number that is not finite" in str(error.value)


def test_tied_embeddings_need_no_head(folder):
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    load(folder)


def test_a_tied_head_that_differs_is_refused_and_one_that_does_not_is_taken(folder):
    path = folder / "model.safetensors"
    for change, is_taken in ((0.0, True), (1.0, False)):
        weights = load_file(path)
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + change
        save_file(weights, path, metadata={"format": "pt"})
        if is_taken:
            load(folder)
            continue
        with pytest.raises(InputError, match="hold a head that is not the embeddings"):
            load(folder)


def test_shards_without_their_index_are_named(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    assert "model.safetensors.index.json is missing, and model-00001-of-00002.saf" in refusal(
        folder
    )


@pytest.mark.parametrize("name", ["chat_template.jinja", "merges.txt", "added_tokens.json"])
def test_pointers_in_the_place_of_small_files_are_seen(folder, name):
    pointer(folder / name)
    assert f"{name} is a Git LFS pointer" in refusal(folder)


def test_an_untied_head_is_needed(folder):
    edit(folder / "config.json", tie_word_embeddings=False)
    with pytest.raises(InputError, match=r"the weights lack 1 tensor \(lm_head\.weight\)"):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_plain_formats_of_numbers_are_taken(folder, dtype):
    path = folder / "model.safetensors"
    weights = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})
    assert load(folder).model.dtype is torch.float32


@pytest.mark.parametrize(
    "name", ["gpt2", "mixtral", "gemma3", "opt", "llama", "qwen3", "phi", "bloom", "cohere"]
)
def test_other_kinds_of_models_are_whole_as_they_are_saved(folder, name):
    """GPT-2 ties its head, Mixtral's experts are merged as they are read."""
    from rltune.policy.source import read_model

    for path in (folder / "model.safetensors", folder / "config.json"):
        path.unlink()
    foreign(name).save_pretrained(folder)
    assert list(folder_problems(folder, "mine")) == []
    read_model(str(folder), "sokoban")


@pytest.fixture
def shards(folder):
    """Split the weights into two files with an index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {}
    for number in (1, 2):
        file = f"model-{number:05}-of-00002.safetensors"
        part = {
            name: t for i, (name, t) in enumerate(sorted(weights.items())) if i % 2 == number - 1
        }
        save_file(part, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )
    return index


def test_shards_are_read_as_one(folder, shards):
    assert stored_tensors(folder).keys() == shards.keys()
    assert load(folder).weights_sha256 == weights_digest(load(SHIPPED / "sokoban").model)


def test_a_missing_or_broken_shard_is_named(folder, shards):
    second = folder / "model-00002-of-00002.safetensors"
    whole = second.read_bytes()
    cut(second, len(whole) - 1)
    assert f"{second.name} is truncated or damaged" in refusal(folder)
    second.unlink()
    assert f"model.safetensors.index.json names {second.name}, which is missing" in refusal(folder)


def test_an_index_that_does_not_agree_with_its_files_is_refused(folder, shards):
    path = folder / "model.safetensors.index.json"
    name, other = UP, {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    (wrong,) = other - {shards[UP]}
    edit(path, weight_map={**shards, name: wrong})
    assert f"says that {UP} is in {wrong}, which does not hold it" in refusal(folder)
    edit(path, weight_map={**shards, UP: "../mine/model-00001-of-00002.safetensors"})
    assert "names ../mine/model-00001-of-00002.safetensors, which is missing" in refusal(folder)
    path.write_text("{}")
    assert "model.safetensors.index.json has no weight_map" in refusal(folder)
