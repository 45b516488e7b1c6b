"""Dropout of adapters: its masks, what it leaves alone, and the file that other programs read."""

import json

import pytest
import torch
from torch import nn

from rltune.policy.dropout import dropping
from rltune.policy.gradient_checkpointing import set_gradient_checkpointing
from rltune.policy.load import weights_digest
from rltune.policy.logprobs import action_hidden
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.serve import ServedPolicy
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.ranks.scoring import score_actions

IDS = torch.tensor([[4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4]])
MASK = torch.tensor([[False, False, True, True, True, True]] * 2)
N_ADAPTERS = 14  # 2 blocks x 7 layers


@pytest.fixture
def adapted(small_policy):
    """Return a maker of models whose adapters do something."""

    def make(dropout=0.3, *, recompute=False, device="cpu"):
        model = small_policy().model
        add_adapter(model, LoraConfig(rank=2, dropout=dropout), seed=0)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in trained_parameters(model).values():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        set_gradient_checkpointing(model, recompute)
        return model.to(device)

    return make


def logprobs(model):
    ids, mask = IDS.to(model.device), MASK.to(model.device)
    return score_actions(model, ids, mask, temperature=1.0).tokens.logprobs_M


def dropped(model, seed):
    with dropping(model, seed=seed):
        return logprobs(model)


def test_masks_follow_the_seed_and_end_with_the_context(adapted):
    model = adapted()
    plain = logprobs(model)
    first = dropped(model, 1)
    assert torch.equal(first, dropped(model, 1))
    assert not torch.equal(first, dropped(model, 2))
    assert not torch.equal(first, plain)
    assert torch.equal(logprobs(model), plain)


def test_without_dropout_nothing_is_dropped(adapted):
    """Bit for bit, also where the same weights have dropout and it is off."""
    model = adapted(dropout=0.0)
    assert torch.equal(dropped(model, 1), logprobs(model))
    assert torch.equal(logprobs(adapted(dropout=0.9)), logprobs(model))
    assert weights_digest(adapted(dropout=0.9)) == weights_digest(model)


def test_the_mean_over_masks_is_what_comes_without(adapted):
    """4,096 masks: within five standard errors in each of 32 outputs."""
    layer = adapted().base_model.layers[0].self_attn.q_proj
    x_ND = torch.randn(32, generator=torch.Generator().manual_seed(5)).expand(4096, -1)
    with torch.no_grad():
        base_D, want_D = layer.base_layer(x_ND)[0], layer(x_ND)[0]
        with dropping(layer, seed=0):
            out_ND = layer(x_ND)
    assert (want_D - base_D).abs().max() > 0.1
    error_D = out_ND.std(0) / 4096**0.5
    assert (error_D > 0).all()
    assert ((out_ND.mean(0) - want_D).abs() < 5 * error_D).all()
    assert error_D.max() < 0.1 * (want_D - base_D).abs().max()  # else it could not fail


def test_nothing_else_of_the_model_trains(adapted):
    model = adapted()
    model.base_model.layers[0].add_module("resid_dropout", nn.Dropout(0.5).eval())
    with dropping(model, seed=0):
        training = [name for name, module in model.named_modules() if module.training]
    assert len(training) == N_ADAPTERS
    assert all(name.endswith("_proj.lora_dropout.default") for name in training)


def fail_late(model):
    logprobs(model)
    raise KeyError


def test_no_random_state_moves_and_all_is_off_after_an_error(adapted):
    model, before = adapted(), torch.get_rng_state()
    with pytest.raises(KeyError), dropping(model, seed=0):
        fail_late(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in model.modules())


def gradients(model, *, seed=7):
    ids, mask = IDS.to(model.device), MASK.to(model.device)
    with dropping(model, seed=seed):
        action_hidden(model.base_model, ids, mask).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in trained_parameters(model).values()])


def test_blocks_that_are_computed_again_drop_the_same(adapted):
    want = gradients(adapted())
    assert torch.equal(gradients(adapted(recompute=True)), want)
    assert not torch.equal(gradients(adapted(recompute=True), seed=8), want)
    assert not torch.equal(gradients(adapted(0.0)), want)


@pytest.mark.gpu
def test_on_a_gpu_its_generator_is_put_back_and_blocks_drop_the_same(adapted):
    plain, again = (adapted(recompute=is_on, device="cuda") for is_on in (False, True))
    before = torch.cuda.get_rng_state()
    want = gradients(plain)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    torch.cuda.manual_seed(1)  # the masks are those of the seed, wherever the generator stands
    assert torch.equal(gradients(again), want)
    assert not torch.equal(gradients(adapted(0.0, device="cuda")), want)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_written_adapter_names_its_dropout(small_policy, tmp_path, dropout):
    policy, lora = small_policy(), LoraConfig(rank=2, dropout=dropout)
    add_adapter(policy.model, lora, seed=0)
    ServedPolicy(policy, lora).write_adapter(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["lora_dropout"] == dropout
