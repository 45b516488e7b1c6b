"""Adapters: the start, its reference, what trains, and adapters saved by peft."""

import json
import warnings

import pytest
import torch
from cases import each
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from rltune.errors import InputError
from rltune.policy.load import file_digest, policy_of, weights_digest
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.value_head import ValueModel, frozen_copy
from rltune.spec.schema.trial import LoraConfig, TrialConfig
from rltune.trainer.checkpoint import Progress, load_checkpoint, save_checkpoint
from rltune.trainer.ranks.scoring import score_actions
from rltune.trainer.train_state import make_train_state

IDS = torch.tensor([[4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4]])
MASK = torch.tensor([[False, False, True, True, True, True]] * 2)


def logprobs(model):
    return score_actions(model, IDS, MASK, temperature=1.0).tokens.logprobs_M


def with_adapter(policy, *, seed=0, **values):
    add_adapter(policy.model, LoraConfig(**{"rank": 2, **values}), seed=seed)
    return policy.model


def move(model):
    """Give B values, so that the adapter does something."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in trained_parameters(model).values():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def saved_by_peft(policy, folder, *, rank=2, alpha=16.0):
    """Save an adapter with peft's own class, which is another path than ours; return its model."""
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    targets = list(LoraConfig().targets)
    config = PeftConfig(r=rank, lora_alpha=alpha, target_modules=targets)
    with warnings.catch_warnings():  # peft 0.21 reads a name that transformers 5.24 renames
        warnings.simplefilter("ignore", FutureWarning)
        wrapped = get_peft_model(policy.model, config)
    move(wrapped)
    wrapped.eval().save_pretrained(folder)
    return wrapped


def test_a_new_adapter_changes_no_logprob(small_policy):
    base, model = small_policy().model, with_adapter(small_policy())
    assert torch.equal(logprobs(base), logprobs(model))
    assert not torch.equal(logprobs(base), logprobs(move(model)))


def test_the_gradient_reaches_the_adapter_alone(small_policy):
    model = with_adapter(small_policy())
    logprobs(model).sum().backward()
    got = {name for name, p in model.named_parameters() if p.grad is not None}
    assert got == set(trained_parameters(model))
    assert all("lora_" in name for name in got)
    # 2 blocks x 7 layers x (A, B).
    assert len(got) == 28


def test_adapters_follow_the_seed_and_move_no_random_state(small_policy):
    policies = [small_policy() for _ in range(3)]
    before = torch.get_rng_state()
    first, again, other = (
        with_adapter(policy, seed=seed) for policy, seed in zip(policies, (0, 0, 1), strict=True)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert weights_digest(first) == weights_digest(again) != weights_digest(other)


def test_an_adapter_that_was_trained_with_another_dropout_starts_the_same(small_policy, tmp_path):
    saved_by_peft(small_policy(), tmp_path)
    plain = logprobs(with_adapter(small_policy(), init=str(tmp_path)))
    edit(lora_dropout=0.5)(tmp_path)
    for dropout in (0.0, 0.1):
        model = with_adapter(small_policy(), init=str(tmp_path), dropout=dropout)
        assert torch.equal(logprobs(model), plain)


@pytest.mark.parametrize("init", ["default", "folder"])
def test_the_reference_is_the_start(small_policy, tmp_path, init):
    saved_by_peft(small_policy(), tmp_path)
    model = with_adapter(small_policy(), init="default" if init == "default" else str(tmp_path))
    reference, start = frozen_copy(model), logprobs(model).detach()
    assert torch.equal(logprobs(reference), start)
    assert torch.equal(logprobs(small_policy().model), start) == (init == "default")
    move(model)
    assert torch.equal(logprobs(reference), start)
    assert not torch.equal(logprobs(model), start)
    assert not any(p.requires_grad for p in reference.parameters())
    own = {id(p) for p in model.parameters()}
    assert {name for name, p in reference.named_parameters() if id(p) not in own} == set(
        trained_parameters(model)
    )


def test_an_adapter_of_peft_gives_what_peft_computes_merged_or_not(small_policy, tmp_path):
    wrapped = saved_by_peft(small_policy(), tmp_path)
    model = with_adapter(small_policy(), init=str(tmp_path))
    ours = logprobs(model)
    assert torch.equal(ours, logprobs(wrapped.base_model.model))
    merged = logprobs(wrapped.merge_and_unload())
    torch.testing.assert_close(ours, merged, atol=1e-4, rtol=1e-4)


def test_a_critic_of_its_own_trains_an_adapter_of_its_own(small_policy):
    model = with_adapter(small_policy())
    critic = ValueModel(model, backbone="own")
    trained = trained_parameters(critic)
    assert {name for name in trained if "lora_" not in name} == {"head.weight", "head.bias"}
    assert not {id(p) for p in trained.values()} & {id(p) for p in model.parameters()}


def config_of(**lora):
    tree = {"env": {"kind": "sokoban", "prompt": "compact"}, "policy": {"model": "tiny"}}
    tree["policy"]["lora"] = {"rank": 2, **lora}
    tree["loss"] = {"use_kl_loss": True, "kl_loss_coef": 0.1}
    tree["advantage"] = {"kind": "grpo"}
    return TrialConfig.model_validate(tree)


def test_a_checkpoint_holds_the_adapter_and_names_the_base(tmp_path):
    from rltune.store.rundir import TrialDir

    config = config_of()
    train_state = make_train_state(policy_of(config, tmp_path, device="cpu"), config)
    move(train_state.policy.model)
    trial = TrialDir(tmp_path / "trial").create()
    folder = save_checkpoint(trial, train_state, Progress(step=1), config_hash="a")
    path = folder / "policy.safetensors"
    assert all("lora_" in name for name in load_file(path))
    again = make_train_state(policy_of(config, tmp_path, device="cpu"), config)
    start = logprobs(again.policy.model).detach()
    load_checkpoint(folder, again, config_hash="a")
    assert weights_digest(again.policy.model) == weights_digest(train_state.policy.model)
    assert file_digest(path) == weights_digest(train_state.policy.model)
    assert torch.equal(logprobs(again.policy.model), logprobs(train_state.policy.model))
    assert torch.equal(logprobs(again.reference), start)
    with torch.no_grad():
        again.policy.model.get_input_embeddings().weight.add_(1)
    assert weights_digest(again.policy.model) != file_digest(path)


def test_an_adapter_folder_is_found_from_the_base_folder(small_policy, tmp_path):
    config = config_of(init="mine")
    base = policy_of(config_of(), tmp_path, device="cpu")
    config_json = {"peft_type": "LORA", "r": 2, "lora_alpha": 16.0}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "adapter_config.json").write_text(json.dumps(config_json))
    tensors = {
        "base_model.model." + name.replace(".default", ""): p.detach().contiguous()
        for name, p in trained_parameters(move(base.model)).items()
    }
    save_file(tensors, tmp_path / "mine" / "adapter_model.safetensors")
    found = policy_of(config, tmp_path, device="cpu")
    assert found.weights_sha256 == weights_digest(base.model)


def as_pickle(folder):
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def edit(**values):
    def change(folder):
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def drop_a_layer(folder):
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    tensors.pop(next(iter(tensors)))
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (as_pickle, r"adapter_model\.bin is a pickle"),
        (edit(r=4), r"its r is 4, and policy\.lora\.rank is 2"),
        (edit(lora_alpha=8), r"its lora_alpha is 8, and policy\.lora\.alpha is 16\.0"),
        (edit(use_dora=True), "its use_dora is True, which is not supported"),
        (drop_a_layer, r"it has no matrices for model\.layers\.0\.mlp\.down_proj, which policy\."),
        (lambda folder: (folder / "adapter_config.json").unlink(), "_config.json is missing"),
    ],
)
def test_an_adapter_that_cannot_be_used_is_refused(small_policy, tmp_path, change, what):
    saved_by_peft(small_policy(), tmp_path)
    change(tmp_path)
    with pytest.raises(InputError, match=rf"(?s)policy\.lora\.init.*{what}"):
        with_adapter(small_policy(), init=str(tmp_path))


def test_unknown_targets_are_refused_with_the_names_of_the_model(small_policy):
    with pytest.raises(
        InputError, match=r"(?s)policy\.lora\.targets.*query.*Allowed: q_proj, k_pr"
    ):
        with_adapter(small_policy(), targets=("q_proj", "query"))
    with pytest.raises(InputError, match=r"policy\.lora\.targets.*lm_head"):
        with_adapter(small_policy(), targets=("lm_head",))


@each(
    "values",
    [
        {"rank": -1},
        {"alpha": 0.0},
        {"dropout": -0.1},
        {"dropout": 1.0},
        {"targets": []},
        {"init": ""},
    ],
)
def test_values_outside_the_domain_are_refused(values):
    with pytest.raises(ValidationError):
        LoraConfig.model_validate(values)
