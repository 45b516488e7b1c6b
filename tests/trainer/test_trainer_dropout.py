"""Dropout of adapters in the update, and in nothing else of a step."""

import pytest
import torch
from credit_cases import parts_of
from torch import nn

from rltune.policy.gradient_checkpointing import set_gradient_checkpointing
from rltune.policy.load import weights_digest
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.train_state import make_train_state, score_batch

GAE = {  # 2 epochs x 2 mini-batches x 2 micro-batches
    "advantage": {"kind": "gae"},
    "optim__epochs": 2,
    "loss__use_kl_loss": True,
    "loss__kl_loss_coef": 0.1,
    "policy__lora__rank": 2,
}
N_PASSES = 8


@pytest.fixture
def prepare(small_policy, make_config, sample_batch):
    """Return a maker of (train_state, data, config) in which policy and critic have adapters."""

    def make(dropout, *, recompute=False, **changes):
        config = make_config(**{**GAE, "policy__lora__dropout": dropout, **changes})
        policy = small_policy()
        add_adapter(policy.model, config.policy.lora, seed=0)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in trained_parameters(policy.model).values():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        set_gradient_checkpointing(policy.model, recompute)
        _, batch = sample_batch(config, policy)
        train_state = make_train_state(policy, config)
        for parameter in train_state.critic.head.parameters():
            nn.init.constant_(parameter, 0.1)
        signals = score_batch(train_state, batch, temperature=1.0, parts=parts_of(batch, 2))
        credit = estimate(batch, signals, config.advantage)
        return train_state, MiniBatch(batch, signals, credit), config

    return make


def make_step(train_state, data, config, *, step=1):
    return update(train_state, data, config, step=step, kl_coef=0.1)


def masks_of(backbone):
    """Return a list that gets how the mask of each pass through the first adapter begins.

    Passes differ in shape; with one seed, the policy's of all shapes begin with the same draws.
    """
    seen = []

    def hook(module, inputs, output):
        assert module.training
        seen.append((output == 0).flatten()[:32].tolist())

    backbone.layers[0].self_attn.q_proj.lora_dropout["default"].register_forward_hook(hook)
    return seen


def distinct(masks):
    return len({tuple(mask) for mask in masks})


def test_every_pass_of_an_update_has_masks_of_its_own(prepare):
    found = []
    for step in (1, 1, 2):
        train_state, data, config = prepare(0.3)
        actor, critic = (
            masks_of(train_state.policy.model.base_model),
            masks_of(train_state.critic.backbone),
        )
        make_step(train_state, data, config, step=step)
        assert (len(actor), len(critic)) == (N_PASSES, N_PASSES)
        assert distinct(actor + critic) == 2 * N_PASSES
        found.append(actor + critic)
    assert found[0] == found[1]
    assert distinct(found[0] + found[2]) == 4 * N_PASSES


def test_sampling_and_scoring_drop_nothing(prepare):
    """The same tokens with the same logprobs, reference, values: bit-equal to no dropout."""
    plain, off = prepare(0.0)[1], prepare(0.5)[1]
    assert plain.batch.ids_NT.tolist() == off.batch.ids_NT.tolist()
    assert (plain.batch.rollout_logprobs_NT == off.batch.rollout_logprobs_NT).all()
    for name in ("old_logp_NT", "ref_logp_NT", "values_NT"):
        assert torch.equal(getattr(off.signals, name), getattr(plain.signals, name))


def test_nothing_is_on_after_an_update_and_no_random_state_moved(prepare):
    train_state, data, config = prepare(0.3)
    before = torch.get_rng_state()
    make_step(train_state, data, config)
    assert torch.equal(torch.get_rng_state(), before)
    for module in (train_state.policy.model, train_state.critic):
        assert not any(m.training for m in module.modules() if isinstance(m, nn.Dropout))


def test_the_first_ratio_is_1_without_dropout_alone(prepare):
    one_step = {"optim__epochs": 1, "optim__mini_batch_size": 8}
    metrics = {p: make_step(*prepare(p, **one_step)) for p in (0.0, 0.3)}
    assert metrics[0.0]["actor/ppo_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics[0.0]["actor/pg_clipfrac"] == metrics[0.0]["critic/vf_clipfrac"] == 0
    assert abs(metrics[0.3]["actor/ppo_kl"]) > 1e-3


def test_weights_are_bit_equal_with_gradient_checkpointing(prepare):
    digests = []
    for is_on in (False, True):
        train_state, data, config = prepare(0.3, recompute=is_on)
        make_step(train_state, data, config)
        digests.append([weights_digest(m) for m in (train_state.policy.model, train_state.critic)])
    assert digests[0] == digests[1]


def test_a_critic_on_the_policy_reads_what_the_update_computes(prepare):
    changes = {"critic__backbone": "policy", "optim__epochs": 1, "optim__mini_batch_size": 8}
    losses = [make_step(*prepare(dropout, **changes))["critic/vf_loss"] for dropout in (0.0, 0.3)]
    assert abs(losses[1] - losses[0]) > 1e-4 * losses[0] > 0
