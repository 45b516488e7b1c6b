"""Folders of `rltune model` in plain vLLM: from text the same tokens as plain transformers."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rltune.policy.export import Sampling, write_adapter, write_model
from rltune.policy.lora import add_adapter, merge_adapter, trained_parameters
from rltune.rollout.vllm_setup import INSTALL, vllm_version
from rltune.spec.schema.trial import LoraConfig

pytestmark = pytest.mark.vllm

STATED = 1e-4  # of logprobs, in float32, as docs/engines.md says of the engine
LORA = LoraConfig(rank=4, alpha=8)
SAMPLING = Sampling(1.0, 8)
TEXTS = ("_P__#X√OS<answer>", "____P_#O_<answer>Up||", "#_OX√PS<answer>Left||Down")
N = 8


@pytest.fixture(scope="module")
def vllm():
    if vllm_version() is None:
        pytest.skip(f"vLLM is not installed: {INSTALL}")
    from rltune.rollout.vllm_start import import_vllm, undisturbed

    with undisturbed():
        return import_vllm()


def trained(policy):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trained_parameters(policy.model).values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


@torch.no_grad()
def greedy(folder, text):
    """Return the ids and logprobs that plain transformers gives, from plain text."""
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    ids = tokenizer(text, return_tensors="pt")
    out = model.generate(
        **ids,
        do_sample=False,
        max_new_tokens=N,
        temperature=None,
        top_k=None,
        top_p=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    new = out.sequences[0, ids.input_ids.shape[1] :]
    logprobs = torch.log_softmax(torch.stack(out.logits)[:, 0].float(), -1)
    return new.tolist(), logprobs.gather(1, new[:, None])[:, 0].tolist()


def assert_agrees(outputs, wanted):
    for output, (ids, logprobs) in zip(outputs, wanted, strict=True):
        (made,) = output.outputs
        assert list(made.token_ids) == ids
        got = [step[token].logprob for step, token in zip(made.logprobs, ids, strict=True)]
        assert got == pytest.approx(logprobs, abs=STATED)


def started(vllm, folder, **more):
    from rltune.rollout.vllm_start import undisturbed

    options = {} if torch.cuda.is_available() else {"block_size": 32}
    with undisturbed():
        return vllm.LLM(
            model=str(folder),
            dtype="float32",
            max_model_len=128,
            max_num_seqs=4,
            kv_cache_memory_bytes=2**26,
            gpu_memory_utilization=0.01,
            enforce_eager=True,
            distributed_executor_backend="uni",
            use_tqdm_on_load=False,
            **options,
            **more,
        )


def ask(vllm, llm, **more):
    params = vllm.SamplingParams(temperature=0.0, max_tokens=N, logprobs=0)
    return llm.generate(list(TEXTS), params, use_tqdm=False, **more)


@pytest.mark.parametrize("kind", ["model", "merged"])
def test_vllm_loads_a_model_folder_and_agrees(vllm, small_policy, tmp_path, kind):
    policy = small_policy(hidden_size=64)
    if kind == "merged":
        add_adapter(policy.model, LORA, seed=0)
    trained(policy)
    if kind == "merged":
        merge_adapter(policy.model)
    write_model(policy, tmp_path, SAMPLING)
    wanted = [greedy(tmp_path, text) for text in TEXTS]
    assert_agrees(ask(vllm, started(vllm, tmp_path)), wanted)


def test_vllm_loads_an_adapter_folder_and_agrees(vllm, small_policy, tmp_path):
    from vllm.lora.request import LoRARequest

    base, adapter, merged = (tmp_path / name for name in ("base", "adapter", "merged"))
    for folder in (base, adapter, merged):
        folder.mkdir()
    write_model(small_policy(hidden_size=64), base, SAMPLING)
    policy = small_policy(hidden_size=64)
    add_adapter(policy.model, LORA, seed=0)
    trained(policy)
    write_adapter(policy, adapter, LORA, SAMPLING, base=str(base))
    merge_adapter(policy.model)
    write_model(policy, merged, SAMPLING)
    wanted = [greedy(merged, text) for text in TEXTS]
    llm = started(vllm, base, enable_lora=True, max_loras=1, max_lora_rank=8)
    request = LoRARequest("trained", 1, str(adapter))
    assert_agrees(ask(vllm, llm, lora_request=request), wanted)
    untrained = ask(vllm, llm)
    assert [list(o.outputs[0].token_ids) for o in untrained] != [ids for ids, _ in wanted]
