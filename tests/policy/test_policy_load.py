import copy
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from rltune.errors import InputError
from rltune.policy.load import assemble, load_policy, tokenizer_digest, weights_digest
from rltune.policy.logprobs import action_hidden
from rltune.policy.precision import compute_dtype
from rltune.policy.render import ChatRenderer, PlainRenderer
from rltune.policy.tiny import SHIPPED


def load(model, **changes):
    arguments = {
        "dtype": "float32",
        "template": "auto",
        "is_bare": False,
        "env_kind": "sokoban",
        "device": "cpu",
    }
    return load_policy(str(model), **{**arguments, **changes})


def save(policy, folder):
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def qwen(size, *, eos):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=size,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def test_the_shipped_policy_loads():
    policy = load("tiny")
    assert policy.tokenizer.convert_ids_to_tokens(list(policy.end_ids)) == ["</answer>"]
    assert policy.pad_id not in policy.end_ids
    assert not policy.model.training
    assert policy.weights_sha256 == weights_digest(policy.model) == load("tiny").weights_sha256


def test_a_saved_policy_comes_back(small_policy, tmp_path):
    policy = small_policy()
    again = load(save(policy, tmp_path / "p"), template="plain")
    assert again.weights_sha256 == policy.weights_sha256
    text = "Up||Down</answer>"
    assert again.tokenizer.encode(text) == policy.tokenizer.encode(text)
    assert again.end_ids == policy.end_ids
    bare = load(tmp_path / "p", template="plain", is_bare=True)
    assert bare.tokenizer_sha256 == policy.tokenizer_sha256


def add_a_token(tokenizer):
    tokenizer.add_tokens(["zzz"])


def change_the_template(tokenizer):
    tokenizer.chat_template = tokenizer.chat_template.replace("user", "human") + " "


@pytest.mark.parametrize("change", [add_a_token, change_the_template])
def test_the_tokenizer_digest_sees_every_part(chat_tokenizer, change):
    numbers = {"kind": "chat", "end_ids": (3,), "pad_id": 0}
    tokenizer = chat_tokenizer()
    digest = tokenizer_digest(tokenizer, **numbers)
    assert digest == tokenizer_digest(chat_tokenizer(), **numbers)
    for name, value in {"kind": "plain", "end_ids": (3, 4), "pad_id": 1}.items():
        assert tokenizer_digest(tokenizer, **{**numbers, name: value}) != digest
    change(tokenizer)
    assert tokenizer_digest(tokenizer, **numbers) != digest


def test_the_kind_of_renderer_is_in_the_digest(small_policy, tmp_path):
    folder = save(small_policy(), tmp_path)
    plain, bare = (load(folder, template="plain", is_bare=is_bare) for is_bare in (False, True))
    assert plain.tokenizer_sha256 != bare.tokenizer_sha256


def test_bfloat16_computes_in_it_and_keeps_weights_and_scores_in_float32(small_policy, tmp_path):
    full, half = (load(save(small_policy(), tmp_path), dtype=d) for d in ("float32", "bfloat16"))
    assert half.model.dtype is torch.float32
    ids = torch.tensor([[9, 10, 14, 2, 5, 4, 6, 3]])
    mask = torch.tensor([[False] * 4 + [True] * 4])
    exact, rough = (action_hidden(p.model.base_model, ids, mask) for p in (full, half))
    assert exact.dtype is rough.dtype is torch.float32
    assert not torch.equal(exact, rough)
    assert torch.allclose(exact, rough, atol=0.05)
    assert compute_dtype(copy.deepcopy(half.model).base_model) is torch.bfloat16


def test_a_missing_model_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"^policy\.model: '.*nowhere' is not a folder\. .*Check"):
        load(tmp_path / "nowhere")


def test_the_digest_sees_every_weight(small_policy):
    policy = small_policy()
    assert small_policy().weights_sha256 == policy.weights_sha256
    assert small_policy(seed=1).weights_sha256 != policy.weights_sha256
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[-1, -1] += 1e-3
    assert weights_digest(policy.model) != policy.weights_sha256


@pytest.mark.parametrize(("template", "kind"), [("auto", ChatRenderer), ("plain", PlainRenderer)])
def test_template(chat_tokenizer, template, kind):
    tokenizer = chat_tokenizer()
    policy = assemble(
        qwen(len(tokenizer), eos=tokenizer.eos_token_id),
        tokenizer,
        template=template,
        is_bare=False,
    )
    assert isinstance(policy.renderer, kind)


def test_auto_without_a_chat_template_is_plain(small_policy, tmp_path):
    assert isinstance(load(save(small_policy(), tmp_path)).renderer, PlainRenderer)


def test_all_end_tokens_count(chat_tokenizer):
    """One from the model's config, one from the tokenizer, one from the chat template."""
    tokenizer = chat_tokenizer(eos="<|endoftext|>")
    text_end, im_end = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    model = qwen(len(tokenizer), eos=[5, text_end])
    chat = assemble(model, tokenizer, template="auto", is_bare=False)
    assert chat.end_ids == tuple(sorted((5, text_end, im_end)))
    assert chat.decoder().end_ids == chat.end_ids
    plain = assemble(model, tokenizer, template="plain", is_bare=False)
    assert plain.end_ids == tuple(sorted((5, text_end)))
    assert plain.pad_id == 5  # no pad token: an end token, which batches tell apart by their mask


def test_a_model_without_an_end_is_refused(small_policy):
    policy = small_policy()
    policy.tokenizer.eos_token = None
    policy.model.generation_config.eos_token_id = None
    with pytest.raises(InputError, match=r"^policy\.model: neither .* Set eos_token in"):
        assemble(policy.model, policy.tokenizer, template="plain", is_bare=True)


def test_a_saved_tokenizer_keeps_its_own_splitting(small_policy, tmp_path):
    """AutoTokenizer would put Qwen2's rules in its place."""
    save(small_policy(), tmp_path)
    named = json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"]
    assert named in ("TokenizersBackend", "PreTrainedTokenizerFast")
    ids = load(tmp_path).tokenizer.encode("#P√Up||Left</answer>")
    assert len(ids) == 7


def test_a_model_in_the_hub_s_cache_is_read_as_its_folder(tmp_path, monkeypatch):
    """No network is asked, and the tokenizer is the one that was saved."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--Some--model"
    shutil.copytree(SHIPPED / "sokoban", model / "snapshots" / "abc")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    policy, shipped = load("Some/model", is_bare=True), load("tiny", is_bare=True)
    assert policy.weights_sha256 == shipped.weights_sha256
    assert policy.tokenizer_sha256 == shipped.tokenizer_sha256


def test_weights_in_a_pickle_are_refused_unopened(tmp_path):
    shutil.copytree(SHIPPED / "sokoban", tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    torch.save(weights, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"cannot be loaded: .*model\.safetensors"):
        load(tmp_path)


def test_code_in_a_model_s_folder_does_not_run(tmp_path):
    shutil.copytree(SHIPPED / "sokoban", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    paths = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    config |= {"auto_map": paths, "model_type": "evil"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(tmp_path)
    assert not (tmp_path / "ran").exists()
