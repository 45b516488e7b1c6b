"""Exported policies, read again by plain transformers and peft."""

import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rltune.errors import StoreError
from rltune.policy.byte_policy import byte_policy
from rltune.policy.export import Sampling, write_adapter, write_model
from rltune.policy.load import load_policy
from rltune.policy.lora import add_adapter, merge_adapter, trained_parameters
from rltune.policy.tiny import SHIPPED
from rltune.spec.schema.trial import LoraConfig

SAMPLING = Sampling(temperature=0.7, max_new_tokens=9)
LORA = LoraConfig(rank=4, alpha=8, targets=("q_proj", "v_proj", "down_proj"))
TEXTS = {
    "sokoban": "_P__#X√OS<answer>Up || Left</answer>",
    "frozen_lake": "P___OGX√<answer>Up||Left</answer>",
    "arithmetic": "12+3=\\boxed{15}",
    "multihop_qa": "<search> the capital</search><information> </information>",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()


@torch.no_grad()
def logits(model):
    ids = torch.arange(2, 14)[None].repeat(2, 1)
    ids[1] = ids[1].flip(0)
    return model(input_ids=ids).logits


def trained(policy, seed=1):
    """Return the policy after a change of what trains, as of an optimiser step."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trained_parameters(policy.model).values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


def test_plain_transformers_computes_the_same_bits(small_policy, tmp_path):
    policy = trained(small_policy())
    before = logits(policy.model)
    made = write_model(policy, tmp_path / "out", SAMPLING)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert again.dtype == torch.float32
    assert torch.equal(logits(again), before)
    assert (made.kind, made.parameters) == ("model", again.num_parameters())
    ours = load_policy(
        str(tmp_path / "out"),
        dtype="float32",
        template="plain",
        is_bare=True,
        env_kind="",
        device="cpu",
    )
    assert made.weights_sha256 == ours.weights_sha256
    assert ours.tokenizer_sha256 == policy.tokenizer_sha256
    assert (ours.end_ids, ours.pad_id) == (policy.end_ids, policy.pad_id)


def test_a_sharded_model_is_read_too(small_policy, tmp_path, monkeypatch):
    policy = small_policy()
    save = policy.model.save_pretrained
    monkeypatch.setattr(policy.model, "save_pretrained", lambda f: save(f, max_shard_size="20KB"))
    write_model(policy, tmp_path / "out", SAMPLING)
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 1


def test_generate_ends_and_samples_as_the_gate_did(small_policy, tmp_path):
    policy = small_policy()
    write_model(policy, tmp_path / "out", SAMPLING)
    saved = GenerationConfig.from_pretrained(tmp_path / "out")
    assert (saved.temperature, saved.top_p, saved.top_k) == (0.7, 1.0, 0)
    assert (saved.do_sample, saved.max_new_tokens) == (True, 9)
    ends = saved.eos_token_id if isinstance(saved.eos_token_id, list) else [saved.eos_token_id]
    assert (tuple(ends), saved.pad_token_id) == (policy.end_ids, policy.pad_id)


def test_a_greedy_gate_gives_greedy_generation(small_policy, tmp_path):
    write_model(small_policy(), tmp_path / "out", Sampling(0.0, 4))
    assert GenerationConfig.from_pretrained(tmp_path / "out").do_sample is False


@pytest.mark.parametrize("trust", [None, False, True])
@pytest.mark.parametrize("kind", TEXTS)
def test_plain_auto_tokenizer_gives_the_ids_of_a_tiny_policy(kind, trust, tmp_path):
    """For qwen2 its own class would replace the splitting rules of tokenizer.json."""
    policy = load_policy(
        "tiny", dtype="float32", template="plain", is_bare=True, env_kind=kind, device="cpu"
    )
    write_model(policy, tmp_path / "out", SAMPLING)
    given = {} if trust is None else {"trust_remote_code": trust}
    again = AutoTokenizer.from_pretrained(tmp_path / "out", **given)
    ids = policy.tokenizer(TEXTS[kind]).input_ids
    assert again(TEXTS[kind]).input_ids == ids
    assert again.decode(ids) == policy.tokenizer.decode(ids)
    wrong = AutoTokenizer.from_pretrained(SHIPPED / kind)
    assert wrong(TEXTS[kind]).input_ids != ids  # else the line of code is not needed any more


def test_plain_auto_tokenizer_gives_the_ids_of_a_byte_policy(tmp_path):
    policy = byte_policy(context=64)
    write_model(policy, tmp_path / "out", SAMPLING)
    text = "it's 12 × ½ –\n\n  <end> Ünïcode <pad>"
    ids = policy.tokenizer(text).input_ids
    again = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again(text).input_ids == ids
    assert again.decode(ids) == policy.tokenizer.decode(ids)


@pytest.fixture
def adapted(small_policy, tmp_path):
    """Return a policy with a trained adapter, and the folder of its base."""
    base = small_policy()
    (tmp_path / "base").mkdir()
    write_model(base, tmp_path / "base", SAMPLING)
    policy = small_policy()
    add_adapter(policy.model, LORA, seed=0)
    return trained(policy), tmp_path / "base"


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")  # peft's use of it
def test_peft_loads_an_adapter_and_computes_the_same_bits(adapted, tmp_path):
    policy, base = adapted
    made = write_adapter(policy, tmp_path / "out", LORA, SAMPLING, base=str(base))
    plain = AutoModelForCausalLM.from_pretrained(base)
    untrained = logits(plain)
    again = PeftModel.from_pretrained(plain, tmp_path / "out")
    assert torch.equal(logits(again), logits(policy.model))
    assert not torch.allclose(logits(again), untrained, atol=1e-2)
    assert made.kind == "adapter"
    assert made.parameters == sum(p.numel() for p in trained_parameters(policy.model).values())
    text = TEXTS["sokoban"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(text).input_ids == policy.tokenizer(text).input_ids


def test_an_adapter_is_what_a_trial_may_start_from(adapted, tmp_path):
    policy, base = adapted
    write_adapter(policy, tmp_path / "out", LORA, SAMPLING, base=str(base))
    again = load_policy(
        str(base),
        dtype="float32",
        template="plain",
        is_bare=True,
        env_kind="",
        device="cpu",
        lora=LORA.model_copy(update={"init": str(tmp_path / "out")}),
    )
    assert torch.equal(logits(again.model), logits(policy.model))


def test_two_exports_have_equal_bytes(adapted, tmp_path):
    policy, base = adapted
    (tmp_path / "other").mkdir()
    for name in ("out", "other"):
        write_adapter(policy, tmp_path / name, LORA, SAMPLING, base=str(base))
    for path in sorted((tmp_path / "out").iterdir()):
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name
    targets = json.loads((tmp_path / "out" / "adapter_config.json").read_text())["target_modules"]
    assert targets == sorted(LORA.targets)


def test_merged_agrees_with_the_adapter(adapted, tmp_path):
    policy, _ = adapted
    before = logits(policy.model)
    merge_adapter(policy.model)
    write_model(policy, tmp_path / "out", SAMPLING)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(again) is type(policy.model)
    assert torch.allclose(logits(again), before, atol=1e-5, rtol=0)
    assert not list((tmp_path / "out").glob("adapter*"))


def test_other_weights_than_meant_are_refused(small_policy, tmp_path, monkeypatch):
    policy = small_policy()

    def damaged(folder):
        with torch.no_grad():
            policy.model.lm_head.weight[0, 0] += 1
        type(policy.model).save_pretrained(policy.model, folder)
        with torch.no_grad():
            policy.model.lm_head.weight[0, 0] -= 1

    monkeypatch.setattr(policy.model, "save_pretrained", damaged)
    with pytest.raises(StoreError, match="was written with other weights"):
        write_model(policy, tmp_path / "out", SAMPLING)


def test_everyone_who_may_read_the_config_may_read_the_weights(small_policy, tmp_path):
    write_model(small_policy(), tmp_path / "out", SAMPLING)
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]
