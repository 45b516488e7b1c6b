"""Any causal LM, or a refusal when it is loaded: its logprobs must be those that are trained on."""

import re

import pytest
import torch
from cases import each
from foreign_models import foreign

from rltune.errors import InputError
from rltune.policy.decode import TransformersDecoder
from rltune.policy.lora import add_adapter
from rltune.policy.model_check import require_context, require_fit, why_rows
from rltune.policy.tiny import tiny_tokenizer
from rltune.spec.schema.trial import LoraConfig

SUPPORTED = ["llama", "mistral", "qwen3", "gemma3", "mixtral", "opt", "gpt2"]
REFUSED = {
    "gemma2": "Gemma2ForCausalLM scales or caps its logits after the head",
    "cohere": "CohereForCausalLM scales or caps its logits after the head",
    "granite": "GraniteForCausalLM scales or caps its logits after the head",
    "phi": "PhiForCausalLM has a bias in its head",
    "bloom": r"BloomForCausalLM cannot be run over a few tokens \(ValueError: too many values",
    "qwen3_next": r"Qwen3NextForCausalLM has layers of kind linear_attention, which cannot",
}


def prove(model):
    decoder = TransformersDecoder(model, pad_id=0, end_ids=(3,))
    require_fit(model, tiny_tokenizer("sokoban"), decoder)


@pytest.mark.parametrize("name", SUPPORTED)
def test_models_that_can_be_trained(name):
    prove(foreign(name))


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_would_be_trained_as_another_one_are_refused(name):
    with pytest.raises(InputError, match=rf"^policy\.model: {REFUSED[name]}"):
        prove(foreign(name))


def test_a_tokenizer_of_another_model_is_refused():
    tokenizer = tiny_tokenizer("sokoban")
    tokenizer.add_tokens(["x1", "x2"])
    model = foreign("llama")
    decoder = TransformersDecoder(model, pad_id=0, end_ids=(3,))
    with pytest.raises(InputError, match=r"ids up to 17, and the model knows 16\."):
        require_fit(model, tokenizer, decoder)


def test_numbers_that_are_not_are_refused():
    model = foreign("llama")
    with torch.no_grad():
        model.get_output_embeddings().weight[3, 0] = torch.nan
    with pytest.raises(InputError):
        prove(model)


@pytest.mark.parametrize(
    ("name", "limit", "why"),
    [
        ("gpt2", 96, "has position embeddings for 96 tokens"),
        ("opt", 96, "has position embeddings for 96 tokens"),
        ("mistral", 64, "see only the last 64 tokens"),
        ("gemma3", 64, "see only the last 64 tokens"),
    ],
)
def test_a_context_that_a_model_cannot_read_is_refused(name, limit, why):
    model = foreign(name)
    require_context(model, limit, engine="torch")
    with pytest.raises(InputError, match=rf"^rollout\.max_context: .*{why}.* at most {limit}\.$"):
        require_context(model, limit + 1, engine="torch")


def test_a_window_binds_the_engine_torch_alone():
    require_context(foreign("mistral"), 65, engine="other")
    require_context(foreign("llama"), 10**6, engine="torch")


@pytest.mark.parametrize("width", [1, 7, 64])
@pytest.mark.parametrize("name", ["llama", "gpt2"])  # rotary and absolute positions
def test_a_longer_row_beside_it_changes_no_logprob(name, width):
    """D5: positions and columns count the tokens of a row, whatever the rows beside it hold."""
    decoder = TransformersDecoder(foreign(name), pad_id=3, end_ids=(3,))
    draw = torch.Generator().manual_seed(0)
    short, long = (torch.randint(4, 16, (n,), generator=draw).tolist() for n in (12, 12 + width))
    alone, beside = decoder.empty_cache(), decoder.empty_cache()
    for first, last in ((0, 5), (5, 12)):
        more = long[first * len(long) // 12 : last * len(long) // 12]
        starts = [first * len(long) // 12, first]
        got = decoder.extend(beside, [more, short[first:last]], starts)[1]
        (want,) = decoder.extend(alone, [short[first:last]], [first])
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@each("name", SUPPORTED)
def test_models_that_take_a_tree(name):
    assert why_rows(foreign(name), max_context=64) is None


def dropping():
    model = foreign("llama")
    add_adapter(model, LoraConfig(rank=2, dropout=0.1), seed=0)
    return model


def flash():
    model = foreign("llama")
    model.config._attn_implementation = "flash_attention_2"
    return model


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: foreign("qwen3_next"), "layers of the kind linear_attention, which carry a state"),
        (lambda: foreign("mistral"), "layers that see only the last 64 tokens of a row"),
        (lambda: foreign("gemma3"), "layers that see only the last 64 tokens of a row"),
        (dropping, r"policy\.lora\.dropout drops other inputs in each row"),
        (flash, "flash_attention_2 attention does not run the rows of a tree; sdpa does"),
    ],
)
def test_models_that_take_rows_alone(model, why):
    assert re.search(why, why_rows(model(), max_context=65))


def test_a_model_that_counts_positions_itself_is_found():
    model = foreign("gpt2")
    model.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: (args, {**kwargs, "position_ids": None}), with_kwargs=True
    )
    assert "GPT2LMHeadModel gives other logprobs in a tree" in why_rows(model, max_context=64)
