"""A copy of a policy computes what the policy does, bit by bit, now and after its updates."""

from dataclasses import replace

import pytest
import torch
from engine_makers import lying_as_in_a_file
from transformers import GPT2Config, GPT2LMHeadModel

from rltune.maths.alignment import place_of
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.precision import round_frozen, set_compute_dtype
from rltune.policy.serve import PolicyCopy, ServedPolicy
from rltune.policy.static_decode import decoder_of
from rltune.spec.schema.trial import LoraConfig

ROWS = [[4, 5, 6, 7, 8], [9, 10, 11]]
NONE, RANK_2 = LoraConfig(), LoraConfig(rank=2, alpha=3.0)


def prepared(policy, lora, dtype):
    """Return a policy as `load_policy` makes it."""
    add_adapter(policy.model, lora, seed=0)
    set_compute_dtype(policy.model, dtype)
    round_frozen(policy.model)
    return policy


def gpt2(policy):
    """Return a policy with a table of 64 positions, biases and a tied head."""
    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=16, n_layer=2, n_head=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return replace(policy, model=GPT2LMHeadModel(config).eval())


def step(policy):
    """Move all that is trained, as an optimiser does."""
    with torch.no_grad():
        for nth, parameter in enumerate(trained_parameters(policy.model).values()):
            parameter.add_(0.01 * (nth % 7 + 1))


def logits(model, policy, rows=ROWS):
    decoder = decoder_of(model, pad_id=policy.pad_id, end_ids=policy.end_ids)
    return decoder.extend(decoder.empty_cache(), rows, [0] * len(rows))


def copy_of(policy, lora, dtype):
    return PolicyCopy(ServedPolicy(policy, lora), lora=lora, dtype=dtype, device="cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [NONE, RANK_2], ids=["full", "lora"])
def test_a_copy_computes_the_same_bits_and_follows(small_policy, lora, dtype):
    policy = prepared(small_policy(), lora, dtype)
    copy = copy_of(policy, lora, dtype)
    before = logits(policy.model, policy)
    assert torch.equal(logits(copy.model, policy), before)
    step(policy)
    assert torch.equal(logits(copy.model, policy), before)  # its weights are its own
    copy.update()
    assert torch.equal(logits(copy.model, policy), logits(policy.model, policy))
    assert not torch.equal(logits(copy.model, policy), before)


@pytest.mark.parametrize("lora", [NONE, RANK_2], ids=["full", "lora"])
def test_a_copy_of_weights_that_lie_as_in_a_file_rounds_as_they_do(small_policy, lora):
    """A product of matrices rounds by where they begin: MKL's, on many kinds of CPU."""
    policy = prepared(lying_as_in_a_file(small_policy(hidden_size=64)), lora, "float32")
    copy = copy_of(policy, lora, "float32")
    places = {name: place_of(weight) for name, weight in ServedPolicy(policy, lora).weights()}
    assert set(places.values()) == {56}
    assert {name: place_of(weight) for name, weight in copy._base.items()} == places
    rows = [[4 + (n * i + i) % 12 for i in range(20)] for n in range(8)]
    for _ in range(2):
        of_policy, of_copy = (logits(model, policy, rows) for model in (policy.model, copy.model))
        assert torch.equal(of_copy, of_policy)
        step(policy)
        copy.update()


def test_learned_positions_and_a_tied_head_with_biases(small_policy):
    policy = gpt2(small_policy())
    copy = copy_of(policy, NONE, "float32")
    step(policy)
    copy.update()
    assert torch.equal(logits(copy.model, policy), logits(policy.model, policy))


def test_nothing_of_a_copy_trains_and_its_layers_are_stored_as_they_compute(small_policy):
    copy = copy_of(prepared(small_policy(), NONE, "bfloat16"), NONE, "bfloat16")
    assert not trained_parameters(copy.model)
    layer = copy.model.base_model.layers[0]
    assert layer.mlp.up_proj.weight.dtype == torch.bfloat16
    assert layer.input_layernorm.weight.dtype == torch.float32


def test_a_weight_that_does_not_come_is_missed_by_name(small_policy):
    policy = small_policy()
    served = ServedPolicy(policy, NONE)
    some = [pair for pair in served.weights() if not pair[0].endswith("norm.weight")]
    served.weights = lambda: iter(some)
    with pytest.raises(ValueError, match=r"^the policy has no weights for model\..*norm\.weight"):
        PolicyCopy(served, lora=NONE, dtype="float32", device="cpu")
