"""The cache of fixed places against the one that grows; the contract suite runs over both, too."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rltune.policy import static_decode
from rltune.policy.decode import TransformersDecoder
from rltune.policy.precision import set_compute_dtype
from rltune.policy.static_decode import StaticDecoder, has_plain_cache
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.torch_engine import TorchEngine


def make_model(**changes):
    torch.manual_seed(0)
    shape = {
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }
    model = Qwen2ForCausalLM(Qwen2Config(**shape | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return model


def engines(model):
    return [
        TorchEngine(kind(model, pad_id=0, end_ids=(3,)))
        for kind in (TransformersDecoder, StaticDecoder)
    ]


def conversation(engine, *, turns=4, rows=13, temperature=1.0):
    """Play some turns; rows end one by one, and prompts differ in length."""
    asked = [Request(i, [5 + i % 5] * (3 + i % 4), seed=i) for i in range(rows)]
    said = []
    for turn in range(turns):
        completions = engine.generate(asked, SamplingParams(temperature, 20, 300))
        said.append(completions)
        asked = [
            Request(r.conversation, [*r.prompt_ids, *c.token_ids, *[7] * (9 + i % 3)], r.seed)
            for i, (r, c) in enumerate(zip(asked, completions, strict=True))
        ][turn:]
    return [completion for completions in said for completion in completions]


def assert_same(left, right, *, within):
    assert [c.token_ids for c in left] == [c.token_ids for c in right]
    for one, other in zip(left, right, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=within)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_same_tokens_as_with_a_growing_cache(monkeypatch, temperature):
    monkeypatch.setattr(static_decode, "COLUMN_BLOCK", 16)  # so that it grows several times
    growing, fixed = (
        conversation(engine, temperature=temperature) for engine in engines(make_model())
    )
    assert sum(len(c.token_ids) for c in growing) > 300
    assert_same(fixed, growing, within=1e-4)


def test_the_same_in_bfloat16():
    model = make_model()
    set_compute_dtype(model, "bfloat16")
    growing, fixed = (conversation(engine, turns=1, temperature=0.0) for engine in engines(model))
    # The first token of each comes from the same prefill; later ones may part by rounding.
    for one, other in zip(fixed, growing, strict=True):
        assert one.token_ids[0] == other.token_ids[0]
        assert one.logprobs[0] == pytest.approx(other.logprobs[0], abs=0.05)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_new_weights_count_from_the_next_sync(dtype):
    model = make_model()
    set_compute_dtype(model, dtype)
    growing, fixed = engines(model)
    for engine in (growing, fixed):
        conversation(engine, turns=1)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    fixed.sync()
    growing.sync()
    one = SamplingParams(0.0, 1, 300)
    asked = [Request(0, [5, 6, 7], 0)]
    (fresh,), (want,) = fixed.generate(asked, one), growing.generate(asked, one)
    assert fresh.token_ids == want.token_ids
    assert fresh.logprobs[0] == pytest.approx(want.logprobs[0], abs=0.05)


def test_an_older_cache_is_void():
    decoder = StaticDecoder(make_model(), pad_id=0, end_ids=(3,))
    old = decoder.empty_cache()
    decoder.empty_cache()
    with pytest.raises(ValueError, match=r"^this cache is void: a decoder with fixed places has "):
        decoder.select(old, torch.tensor([0]))


def test_layers_that_keep_a_window_only_are_told_apart():
    assert has_plain_cache(make_model())
    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    assert not has_plain_cache(make_model(**windows))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_replayed_graphs_give_the_same_first_tokens_and_are_used(dtype):
    model = make_model().cuda()
    set_compute_dtype(model, dtype)
    growing, _ = engines(model)
    decoder = StaticDecoder(model, pad_id=0, end_ids=(3,))
    fixed = TorchEngine(decoder)
    for _ in range(2):  # the second time, graphs of the first are replayed
        left, right = (conversation(e, turns=2, temperature=0.0) for e in (fixed, growing))
        if dtype == "float32":
            assert_same(left, right, within=1e-3)
        assert [c.token_ids[0] for c in left[:13]] == [c.token_ids[0] for c in right[:13]]
        fixed.sync()
        growing.sync()
    assert decoder._graphs
    assert decoder._can_capture


@pytest.mark.gpu
def test_a_share_of_a_gpu_caps_what_torch_allocates():
    from rltune.runner.process import limit_share

    total = torch.cuda.get_device_properties(0).total_memory
    limit_share(0.01)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 50, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
