"""Any causal LM, or a refusal when it is loaded: its logprobs must be those that are trained on."""

import pytest
import torch
from foreign_models import foreign

from rltune.errors import InputError
from rltune.policy.decode import TransformersDecoder
from rltune.policy.model_check import require_context, require_fit
from rltune.policy.tiny import tiny_tokenizer

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
