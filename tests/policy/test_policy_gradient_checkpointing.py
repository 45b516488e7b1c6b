"""Gradient checkpointing: the same gradients bit for bit, from fewer kept activations."""

import pytest
import torch
from foreign_models import foreign
from torch import nn

from rltune.errors import InputError
from rltune.policy.gradient_checkpointing import set_gradient_checkpointing
from rltune.policy.kv_cache import new_kv_cache
from rltune.policy.logprobs import action_hidden
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.precision import round_frozen, set_compute_dtype
from rltune.policy.value_head import ValueModel
from rltune.spec.schema.trial import LoraConfig

IDS = torch.randint(4, 16, (3, 40), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(40).expand(3, -1) >= 20


def model_of(name, *, lora=False, dtype="float32", is_on=True):
    model = foreign(name)
    if lora:
        add_adapter(model, LoraConfig(rank=2), seed=0)
    set_compute_dtype(model, dtype)
    set_gradient_checkpointing(model, is_on)
    return model


def backward(run, module):
    """Return the gradients, and how many bytes were kept for the backward pass."""
    kept = 0

    def keep(tensor):
        nonlocal kept
        kept += 0 if isinstance(tensor, nn.Parameter) else tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = run().square().sum()
    loss.backward()
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}, kept


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "lora"),
    [("llama", False), ("llama", True), ("gpt2", False)],  # gpt2's config has dropout
)
def test_gradients_are_bit_equal_and_activations_are_not_kept(name, lora, dtype):
    found = []
    for is_on in (False, True):
        model = model_of(name, lora=lora, dtype=dtype, is_on=is_on)
        backbone = model.base_model
        found.append(backward(lambda b=backbone: action_hidden(b, IDS, MASK), model))
        assert not any(module.training for module in model.modules())
    (plain, kept_plain), (again, kept_again) = found
    assert set(plain) == set(again)
    assert all(torch.equal(plain[key], again[key]) for key in plain)
    assert kept_again < kept_plain / 3


def test_a_critic_of_its_own_computes_again_too():
    kept = []
    for is_on in (False, True):
        model = model_of("llama", is_on=is_on)
        critic = ValueModel(model, backbone="own")
        nn.init.ones_(critic.head.weight)
        hidden = torch.zeros(int(MASK.sum()), 32)
        kept.append(backward(lambda c=critic, h=hidden: c(IDS, MASK, h), critic)[1])
    assert kept[1] < kept[0] / 3


def test_a_pass_without_gradient_keeps_its_cache():
    model = model_of("llama")
    cache = new_kv_cache(model)
    with torch.no_grad():
        action_hidden(model.base_model, IDS, MASK, cache=cache)
    assert cache.get_seq_length() == 39


def test_a_model_without_blocks_is_refused():
    model = foreign("llama")
    model.base_model.layers = nn.ModuleList()
    with pytest.raises(
        InputError, match=r"^optim\.gradient_checkpointing: LlamaForCausalLM has no"
    ):
        set_gradient_checkpointing(model, True)
    set_gradient_checkpointing(model, False)


def test_frozen_layers_in_bfloat16_change_no_result():
    """Autocast rounds their weights in every pass; the adapter, norms and embeddings stay."""
    found = []
    for is_rounded in (False, True):
        model = model_of("llama", lora=True, dtype="bfloat16", is_on=False)
        if is_rounded:
            round_frozen(model)
        found.append(backward(lambda m=model: action_hidden(m.base_model, IDS, MASK), model)[0])
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])
    halves = [p for p in model.parameters() if p.dtype is torch.bfloat16]
    assert len(halves) == 2 * 7  # layers x linear layers
    assert all(p.dtype is torch.float32 for p in trained_parameters(model).values())
    full = foreign("llama")
    set_compute_dtype(full, "bfloat16")
    round_frozen(full)
    assert all(p.dtype is torch.float32 for p in full.parameters())
