"""The static cache against the growing one; the contract suite also runs over both."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen2Config, Qwen2ForCausalLM

from rltune.policy import static_decode
from rltune.policy.decode import TransformersDecoder
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.precision import set_compute_dtype
from rltune.policy.static_decode import StaticDecoder, has_plain_cache
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import LoraConfig


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
    with pytest.raises(ValueError, match=r"^this cache is void: a static decoder has "):
        decoder.extend(old, [[5]], [0])


def test_layers_that_keep_a_window_only_are_told_apart():
    assert has_plain_cache(make_model())
    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    assert not has_plain_cache(make_model(**windows))


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_the_store_takes_what_a_plan_counts(dtype, width):
    """13 rows are 16, 6 + 20 columns are 128: 2 (k and v) x 2 layers x 2 heads x 8 x 16 x 128."""
    model = make_model()
    set_compute_dtype(model, dtype)
    decoder = StaticDecoder(model, pad_id=0, end_ids=(3,))
    engine = TorchEngine(decoder)
    conversation(engine, turns=1)
    assert decoder._store.nbytes == 2 * 2 * 2 * 8 * 16 * 128 * width
    engine.release()
    assert decoder._store.nbytes == 0


def test_after_a_rest_it_says_the_same():
    _, fixed = engines(make_model())
    before = conversation(fixed)
    fixed.release()
    assert_same(conversation(fixed), before, within=0)


class ReadingBack(TorchDispatchMode):
    """Names of operations that wait for a result on the host: a CUDA graph cannot hold one."""

    KINDS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal.")

    def __init__(self):
        super().__init__()
        self.ran, self.found = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ran += 1
        self.found += [str(func) for kind in self.KINDS if kind in str(func)]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pass_reads_nothing_back(dtype, rank):
    model = make_model()
    add_adapter(model, LoraConfig(rank=rank), seed=0)
    set_compute_dtype(model, dtype)
    decoder = StaticDecoder(model, pad_id=0, end_ids=(3,))
    cache, steps, forward = decoder.empty_cache(), [], decoder._forward
    decoder._forward = lambda step: steps.append(step) or forward(step)
    decoder.extend(cache, [[5, 6]], [0])
    with torch.no_grad(), ReadingBack() as mode:
        forward(steps[0])
    assert mode.ran > 100
    assert mode.found == []
    with ReadingBack() as mode:
        torch.ones(2).sum().item()
    assert mode.found == ["aten._local_scalar_dense.default"]


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_replayed_graphs_follow_the_weights_and_are_used(monkeypatch, dtype, rank):
    """Graphs of many sizes, in any order, over weights that an optimiser changes in place."""
    monkeypatch.setattr(static_decode, "COLUMN_BLOCK", 16)
    model = make_model()
    add_adapter(model, LoraConfig(rank=rank), seed=0)
    model.cuda()
    set_compute_dtype(model, dtype)
    growing, _ = engines(model)
    decoder = StaticDecoder(model, pad_id=0, end_ids=(3,))
    fixed = TorchEngine(decoder)
    trained = list(trained_parameters(model).values())
    optimizer = torch.optim.AdamW(trained, lr=0.03, fused=True)
    first, sizes = [], []
    for _ in range(3):  # from the second time on, graphs of before are replayed
        left, right = (conversation(e, turns=2, temperature=0.0) for e in (fixed, growing))
        if dtype == "float32":
            assert_same(left, right, within=1e-3)
        for one, other in zip(left[:13], right[:13], strict=True):
            assert one.token_ids[0] == other.token_ids[0]
            assert one.logprobs[:2] == pytest.approx(other.logprobs[:2], abs=0.1)
        first.append([c.logprobs for c in left])
        sizes.append(len(decoder._graphs))
        for parameter in trained:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        fixed.release()
        fixed.sync()
        growing.sync()
    assert first[0] != first[1] != first[2]
    assert sizes[-1] > 2
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
