"""Scores of gold answers equal those of one forward per context, whatever else is in the batch."""

import pytest
import torch
from cases import each
from foreign_models import gpt2
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from rltune.policy.gold import GoldCopy
from rltune.policy.gold_scores import gold_logprobs
from rltune.policy.kv_cache import keeping

VOCABULARY = 14


def qwen2(**changes):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        **{"attn_implementation": "sdpa", **changes},
    )
    return Qwen2ForCausalLM(config).eval()


MODELS = {
    "tiny": lambda small_policy: small_policy().model,
    "absolute": lambda _: gpt2(VOCABULARY),
    "grouped": lambda _: qwen2(),
    "eager": lambda _: qwen2(attn_implementation="eager"),
}


@pytest.fixture(params=MODELS)
def model(request, small_policy):
    return MODELS[request.param](small_policy)


def rows():
    return torch.randint(2, VOCABULARY, (4, 24), generator=torch.Generator().manual_seed(0))


def copies():
    """Make copies of different numbers, lengths and borders; the third row has none."""
    yes, no = True, False
    return [
        [GoldCopy(end, (3, 5 + end % 3, 9, 4), (no, yes, yes, no)) for end in (4, 11, 24)],
        [GoldCopy(1, (7, 8), (yes, yes)), GoldCopy(1, (2, 3, 6), (no, no, yes))],
        [],
        [GoldCopy(9, (5,), (yes,)), GoldCopy(3, (11, 2, 13), (yes, no, yes))],
    ]


@torch.no_grad()
def alone(model, row, copy, temperature=1.0):
    ids = torch.cat([row[: copy.context_end], torch.tensor(copy.ids)])[None]
    logp = (model(input_ids=ids, use_cache=False).logits[0] / temperature).log_softmax(-1)
    places = [place for place, is_scored in enumerate(copy.scored) if is_scored]
    return torch.stack([logp[copy.context_end + i - 1, copy.ids[i]] for i in places]).mean()


def one_by_one(model, ids, copies_B, temperature=1.0):
    width = max(len(found) for found in copies_B)
    want = torch.full((len(ids), width), torch.nan, dtype=model.dtype)
    for row, found in enumerate(copies_B):
        for index, copy in enumerate(found):
            want[row, index] = alone(model, ids[row], copy, temperature)
    return want


def close(got, want, atol=1e-5):
    torch.testing.assert_close(got, want, rtol=0, atol=atol, equal_nan=True)


def test_equal_to_one_forward_per_context(model):
    got = gold_logprobs(model, rows(), copies())
    assert got.dtype == torch.float32
    assert not got.requires_grad
    close(got, one_by_one(model, rows(), copies()))
    assert got.isnan().sum(1).tolist() == [0, 1, 3, 1]
    assert len(set(got[~got.isnan()].tolist())) == 7  # the models tell all of them apart


def test_equal_to_rounding_in_float64(small_policy):
    model = small_policy(dtype="float64").model
    got = gold_logprobs(model, rows(), copies())
    close(got, one_by_one(model, rows(), copies()), atol=1e-12)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_temperature_divides_the_logits(model, temperature):
    got = gold_logprobs(model, rows(), copies(), temperature=temperature)
    close(got, one_by_one(model, rows(), copies(), temperature))


@pytest.mark.parametrize("chunk", [1, 3])
def test_the_chunk_changes_nothing(model, chunk):
    got = gold_logprobs(model, rows(), copies(), chunk=chunk)
    close(got, gold_logprobs(model, rows(), copies()))


def test_tokens_after_a_context_change_nothing(model):
    ids, changed = rows(), rows()
    found = [[copy for copy in row if copy.context_end < 12] for row in copies()]
    changed[:, 11:] = 2 + (changed[:, 11:] + 3) % (VOCABULARY - 2)
    close(gold_logprobs(model, changed, found), gold_logprobs(model, ids, found))
    changed = rows()
    changed[0, 10] = 2 + (changed[0, 10] + 3) % (VOCABULARY - 2)  # last token of a context of 11
    moved = (gold_logprobs(model, changed, found) - gold_logprobs(model, ids, found)).abs()
    assert moved[0, 0] < 1e-5
    assert moved[0, 1] > 1e-4


@pytest.mark.parametrize("filler", [0, 3, 1_000_000])
def test_right_padding_changes_nothing(small_policy, filler):
    model, ids = small_policy().model, rows()
    padded = torch.cat([ids, torch.full((4, 9), filler)], 1)
    close(gold_logprobs(model, padded, copies()), gold_logprobs(model, ids, copies()))


def test_copies_and_rows_do_not_see_each_other(model):
    ids, found = rows(), copies()
    want = gold_logprobs(model, ids, found)
    other = [found[0][1:2], [], [GoldCopy(20, (4, 4), (True, True))], found[3][::-1]]
    got = gold_logprobs(model, ids, other)
    close(got[0, 0], want[0, 1])
    close(got[3], want[3, :2].flip(0))


def test_what_follows_the_last_scored_token_changes_nothing(model):
    ids = rows()[:1]
    short = gold_logprobs(model, ids, [[GoldCopy(8, (3, 5), (False, True))]])
    tail = gold_logprobs(model, ids, [[GoldCopy(8, (3, 5, 9, 4), (False, True, False, False))]])
    assert torch.equal(short, tail)


@pytest.mark.parametrize("width", [23, 24])
def test_keys_and_values_that_are_there_already_are_reused(model, width):
    with torch.no_grad():
        prefix = DynamicCache(config=model.config)
        model.base_model(input_ids=rows()[:, :width], **keeping(prefix))
    got = gold_logprobs(model, rows(), copies(), prefix=prefix)
    close(got, one_by_one(model, rows(), copies()))


def test_a_prefix_that_is_too_short_is_refused(small_policy):
    model = small_policy().model
    prefix = DynamicCache(config=model.config)
    with torch.no_grad():
        model.base_model(input_ids=rows()[:, :22], **keeping(prefix))
    with pytest.raises(ValueError, match=r"^the prefix holds 22 tokens .* context needs 23\.$"):
        gold_logprobs(model, rows(), copies(), prefix=prefix)


def test_the_compute_format_of_the_policy_is_used(small_policy):
    got = gold_logprobs(small_policy(dtype="bfloat16").model, rows(), copies())
    want = gold_logprobs(small_policy().model, rows(), copies())
    assert got.dtype == torch.float32
    assert not torch.equal(got.nan_to_num(), want.nan_to_num())
    close(got, want, atol=0.15)


def test_rows_without_any_copy(small_policy):
    assert gold_logprobs(small_policy().model, rows(), [[]] * 4).shape == (4, 0)


@each(
    ("make", "call", "message"),
    [
        (
            qwen2,
            {"temperature": 0.0},
            r"^temperature is 0\.0 and chunk 4096; they must be positive",
        ),
        (qwen2, {"chunk": 0}, r"^temperature is 1\.0 and chunk 0; they must be positive\.$"),
        (
            qwen2,
            {"copies_B": [[]]},
            r"^ids_BT has shape \(4, 24\) and there are copies for 1 rows; expected",
        ),
        (
            qwen2,
            {"copies_B": [[GoldCopy(25, (1,), (True,))], [], [], []]},
            r"^a context of 25 tokens in rows of 24\.$",
        ),
        (
            lambda: qwen2(use_sliding_window=True, sliding_window=8, max_window_layers=0),
            {},
            r"^Qwen2ForCausalLM has sdpa attention, layers \['sliding_attention'\] and sliding "
            r"window 8; gold answers need sdpa or eager attention over the whole context\.",
        ),
        (
            lambda: qwen2(attn_implementation="flex_attention"),
            {},
            r"^Qwen2ForCausalLM has flex_attention attention, layers .*attn_implementation='sdpa'",
        ),
    ],
)
def test_bad_inputs_are_named(make, call, message):
    arguments = {"copies_B": copies(), **call}
    with pytest.raises(ValueError, match=message):
        gold_logprobs(make(), rows(), **arguments)
