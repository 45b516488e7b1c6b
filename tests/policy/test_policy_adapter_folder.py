"""Adapters that were made for other weights are refused by name, never silently taken."""

import json
import shutil
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

from rltune.errors import InputError
from rltune.policy.load import load_policy
from rltune.policy.model_folder import SHIPPED
from rltune.policy.read_folder import Reading, require_readable
from rltune.spec.schema.trial import LoraConfig

SOKOBAN = SHIPPED / "sokoban"
LAYER = "model.layers.0.mlp.up_proj"


def saved(folder, base=SOKOBAN, **values):
    """Train nothing, and save an adapter with peft's own class."""
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(base)
        values = {
            "r": 2,
            "lora_alpha": 16.0,
            "target_modules": list(LoraConfig().targets),
            **values,
        }
        get_peft_model(model, PeftConfig(**values)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def adapter(plain, tmp_path):
    return shutil.copytree(plain, tmp_path / "adapter")


def load(adapter, model="tiny", **values):
    return load_policy(
        str(model),
        dtype="float32",
        template="auto",
        is_bare=True,
        env_kind="sokoban",
        device="cpu",
        lora=LoraConfig(rank=2, init=str(adapter), **values),
    )


def edit(adapter, **values):
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refused(adapter, model="tiny", **values):
    with pytest.raises(InputError) as error:
        load(adapter, model, **values)
    (problem,) = error.value.problems
    assert problem.where == "policy.lora.init"
    return problem.what.removeprefix(f"{str(adapter)!r} cannot be used: "), problem.action


def test_a_plain_adapter_is_taken(plain):
    load(plain)


@pytest.mark.parametrize("kind", ["pissa", "pissa_niter_2", "olora"])
def test_an_adapter_that_changes_its_base_is_refused(tmp_path, kind):
    what, action = refused(saved(tmp_path / "it", init_lora_weights=kind))
    assert what == (
        f"its init_lora_weights is {kind!r}: such an adapter belongs to a base whose weights were "
        "changed when it was made, and on the plain base it is another policy."
    )
    assert "path_initial_model_for_weight_conversion" in action
    assert "If policy.model is the changed base, set init_lora_weights to true" in action


@pytest.mark.parametrize("kind", ["loftq", "corda", "lora_ga", "pissa", "of a later version"])
def test_so_is_one_that_is_not_known(adapter, kind):
    edit(adapter, init_lora_weights=kind)
    assert refused(adapter)[0].startswith(f"its init_lora_weights is {kind!r}: ")


@pytest.mark.parametrize("kind", [True, False, "gaussian", "orthogonal", "eva"])
def test_starts_that_leave_the_base_alone_are_taken(adapter, kind):
    edit(adapter, init_lora_weights=kind)
    load(adapter)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("peft_type", "LOHA"),
        ("bias", "all"),
        ("use_dora", True),
        ("use_rslora", True),
        ("fan_in_fan_out", True),
        ("modules_to_save", ["lm_head"]),
        ("rank_pattern", {"q_proj": 4}),
        ("alpha_pattern", {"q_proj": 4}),
        ("layer_replication", [[0, 2], [1, 3]]),
        ("alora_invocation_tokens", [1, 2]),
        ("loftq_config", {"loftq_bits": 4}),
        ("corda_config", {"corda_method": "kpm"}),
        ("lora_bias", True),
        ("target_parameters", ["experts.gate_up_proj"]),
        ("trainable_token_indices", [1]),
        ("use_qalora", True),
        ("megatron_config", {"a": 1}),
        ("arrow_config", {"top_k": 3}),
        ("use_bdlora", {"a": 1}),
        ("a_key_of_a_later_version", 0.1),
    ],
)
def test_what_is_no_plain_lora_is_refused_by_its_key(adapter, key, value):
    edit(adapter, **{key: value})
    assert refused(adapter)[0] == f"its {key} is {value!r}, which is not supported."


def base_with(folder, change=None):
    shutil.copytree(SOKOBAN, folder)
    path = folder / "model.safetensors"
    weights = load_file(path)
    if change:
        change(weights)
    save_file(weights, path, metadata={"format": "pt"})
    return folder


def moved(weights):
    weights[f"{LAYER}.weight"] = weights[f"{LAYER}.weight"] + 1e-3


def test_a_base_that_is_there_is_compared_by_its_weights(tmp_path):
    other = base_with(tmp_path / "sokoban", moved)  # of the same name and the same shapes
    same = base_with(tmp_path / "copy")
    again = shutil.copytree(same, tmp_path / "renamed")
    adapter = saved(tmp_path / "adapter", base=same)

    load(adapter, same)
    load(adapter, again)
    what, action = refused(adapter, other)
    assert (
        what == f"it was made for the base model {str(same)!r}, and policy.model is {str(other)!r}."
    )
    assert f'"base_model_name_or_path": "{other}"' in action
    edit(adapter, base_model_name_or_path=str(other))
    load(adapter, other)


@pytest.mark.parametrize(
    ("made_for", "model", "is_taken"),
    [
        ("Qwen/Qwen2.5-3B", "here/Qwen2.5-3B", True),
        ("qwen/qwen2.5-3b", "here/Qwen2.5-3B", True),
        ("/gone/Qwen2.5-3B/", "here/Qwen2.5-3B", True),
        ("Qwen/Qwen2.5-3B", "models--Qwen--Qwen2.5-3B/snapshots/abc", True),
        ("Other/Qwen2.5-3B", "models--Qwen--Qwen2.5-3B/snapshots/abc", False),
        ("Qwen/Qwen2.5-3B-Instruct", "here/Qwen2.5-3B", False),
        ("Qwen/Qwen2.5-0.5B", "models--Qwen--Qwen2.5-3B/snapshots/abc", False),
        (None, "here/Qwen2.5-3B", True),  # it says nothing
        ("", "here/Qwen2.5-3B", True),
    ],
)
def test_a_base_that_is_not_there_is_compared_by_name(adapter, tmp_path, made_for, model, is_taken):
    folder = tmp_path / model
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(SOKOBAN, folder)
    edit(adapter, base_model_name_or_path=made_for)
    if is_taken:
        load(adapter, folder)
    else:
        assert refused(adapter, folder)[0].startswith(
            f"it was made for the base model {made_for!r}, and policy.model is {str(folder)!r}"
        )


def rewrite(adapter, change):
    path = adapter / "adapter_model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


PREFIX = f"base_model.model.{LAYER}"


def another_layer(weights):
    weights["base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"] = torch.zeros(2, 4)


def another_shape(weights):
    weights[f"{PREFIX}.lora_A.weight"] = torch.zeros(2, 4)


def no_layer(weights):
    for part in "AB":
        del weights[f"{PREFIX}.lora_{part}.weight"]


def no_number(weights):
    weights[f"{PREFIX}.lora_A.weight"][0, 0] = torch.nan


def whole_numbers(weights):
    weights[f"{PREFIX}.lora_A.weight"] = weights[f"{PREFIX}.lora_A.weight"].to(torch.int8)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (another_layer, "it adapts transformer.h.0.attn.c_attn, which Qwen2ForCausalLM does not"),
        (no_layer, f"it has no matrices for {LAYER}, which policy.lora.targets names"),
        (
            another_shape,
            f"{LAYER}.lora_A.default.weight has the shape (2, 4), and Qwen2ForCausalLM needs "
            "(2, 128)",
        ),
        (no_number, f"{LAYER}.lora_A.default.weight holds 1 number that is not finite"),
        (whole_numbers, f"adapter_model.safetensors holds {PREFIX}.lora_A.weight in I8, and"),
    ],
)
def test_tensors_that_do_not_fit_are_named(adapter, change, what):
    rewrite(adapter, change)
    assert refused(adapter)[0].startswith(what)


def test_a_layer_that_the_targets_do_not_name_is_named(adapter):
    what, _ = refused(adapter, targets=("q_proj", "k_proj"))
    assert what == (
        "it adapts model.layers.0.mlp.down_proj, which policy.lora.targets does not name."
    )


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_file_that_is_cut_short_is_named(adapter, name):
    path = adapter / name
    path.write_bytes(path.read_bytes()[:-9])
    assert refused(adapter)[0].startswith(f"{name} is truncated or damaged (")
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refused(adapter)[0].startswith(f"{name} is a Git LFS pointer, ")


@pytest.mark.slow
def test_the_driver_reads_adapters_as_a_trial_would(adapter):
    rewrite(adapter, no_number)
    lora = LoraConfig(rank=2, init=str(adapter)).model_dump_json()
    with pytest.raises(InputError, match=r"^policy\.lora\.init: .* holds 1 number that is not"):
        require_readable([Reading(str(SOKOBAN), "tiny", "policy.model", lora)])
