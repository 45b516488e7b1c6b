"""F3: a run that starts from an adapter is tied to that adapter, also after a resume."""

import json
from dataclasses import replace

import pytest
import torch
from credit_cases import parts_of
from safetensors.torch import save_file

from rltune.errors import InterruptedRun
from rltune.policy.load import weights_digest
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.trainer.checkpoint import load_checkpoint
from rltune.trainer.train_state import make_train_state, score_batch

CHANGES = {
    "policy__lora__rank": 2,
    "loss__use_kl_loss": True,
    "loss__kl_loss_coef": 0.05,
    "budget__steps": 4,
    "checkpoint__every": 2,
    "optim__mini_batch_size": 8,
    "optim__micro_batch_size": 8,
}


@pytest.fixture
def adapter(small_policy, make_config, tmp_path):
    """Return a folder with an adapter that is far from doing nothing, as peft writes it."""
    model, lora = small_policy().model, make_config(**CHANGES).policy.lora
    add_adapter(model, lora, seed=5)
    generator = torch.Generator().manual_seed(3)
    tensors = {
        "base_model.model." + name.replace(".default", ""): p.detach()
        + 0.3 * torch.randn(p.shape, generator=generator)
        for name, p in trained_parameters(model).items()
    }
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": lora.rank, "lora_alpha": lora.alpha}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return folder


def scores(train_state, batch):
    return score_batch(train_state, batch, temperature=1.0, parts=parts_of(batch, 8))


def test_the_kl_at_the_start_is_exactly_0(small_policy, make_config, sample_batch, adapter):
    config = make_config(**CHANGES, policy__lora__init=str(adapter))
    policy, base = small_policy(), small_policy()
    add_adapter(policy.model, config.policy.lora, seed=0)
    _, batch = sample_batch(config, policy)
    signals = scores(make_train_state(policy, config), batch)
    assert torch.equal(signals.ref_logp_NT, signals.old_logp_NT)
    of_base = scores(make_train_state(base, make_config()), batch)
    assert (signals.ref_logp_NT - of_base.old_logp_NT).abs().max() > 0.1  # the wrong reference


def test_the_reference_after_a_resume_is_the_adapter(make_trial, adapter):
    changes = {**CHANGES, "policy__lora__init": str(adapter)}
    whole, cut = make_trial("whole", **changes), make_trial("cut", **changes)
    whole.run()
    with pytest.raises(InterruptedRun):
        cut.run(stop_at=3)
    cut.run()
    kl = [row["actor/kl_loss"] for row in whole.rows[1:]]
    assert [row["actor/kl_loss"] for row in cut.rows[1:]] == kl
    assert weights_digest(cut.policy.model) == weights_digest(whole.policy.model)
    assert kl[0] < 1e-9 < 1e-4 < kl[3]  # with the resume point as reference, it would fall to 0


def test_a_loaded_checkpoint_leaves_the_reference_bit_equal(
    make_trial, small_policy, sample_batch, adapter
):
    trial = make_trial(**CHANGES, policy__lora__init=str(adapter))
    trial.run()
    policy = small_policy()
    add_adapter(policy.model, trial.config.policy.lora, seed=0)
    policy = replace(policy, weights_sha256=weights_digest(policy.model))
    _, batch = sample_batch(trial.config, policy)
    train_state = make_train_state(policy, trial.config)
    start = scores(train_state, batch)
    load_checkpoint(trial.folder.checkpoint(4), train_state, config_hash="c" * 64)
    resumed = scores(train_state, batch)
    assert torch.equal(resumed.ref_logp_NT, start.ref_logp_NT)
    assert not torch.equal(resumed.old_logp_NT, start.old_logp_NT)
