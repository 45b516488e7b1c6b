import math
import os
import subprocess
import sys
from copy import deepcopy

import pytest
from cases import each
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.spec.identity import (
    EXCLUDED,
    MISSING,
    canonical_json,
    config_hash,
    diff_configs,
    flatten,
    is_excluded,
    safe_slug,
    trial_id,
)
from rltune.spec.keys import config_keys, nested
from rltune.spec.schema.trial import TrialConfig, to_plain

LEAF_KEYS = tuple(key for key, is_leaf in config_keys().items() if is_leaf)
CONFIG = to_plain(TrialConfig(policy={"model": "tiny"}, env={"prompt": "compact"}))

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | finite | st.text()
trees = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


def reordered(tree):
    if isinstance(tree, dict):
        return {key: reordered(tree[key]) for key in reversed(list(tree))}
    return [reordered(item) for item in tree] if isinstance(tree, list) else tree


@settings(max_examples=30)
@given(st.dictionaries(st.text(), trees))
def test_canonical_json_does_not_see_key_order(tree):
    assert canonical_json(reordered(tree)) == canonical_json(tree)


def test_canonical_json_by_hand():
    tree = {"b": [1, 2.0, True, None], "a": {"y": 1e-3, "x": "é"}, "c": -0.0}
    assert canonical_json(tree) == '{"a":{"x":"é","y":0.001},"b":[1,2.0,true,null],"c":0.0}'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_canonical_json_refuses_what_is_not_json(number):
    with pytest.raises(ValueError, match=r"^(nan|inf|-inf) has no canonical JSON"):
        canonical_json({"a": [number]})
    with pytest.raises(TypeError):
        canonical_json({"a": object()})


configs = st.builds(
    lambda seed, lr, coef, kl_type, kind, filtered: TrialConfig(
        seed=seed,
        policy={"model": "tiny"},
        env={"prompt": "compact"},
        optim={"lr": lr},
        loss={"use_kl_loss": coef > 0, "kl_loss_coef": coef, "kl_type": kl_type},
        advantage={"kind": kind},
        rollout_filter={"value": 0.5 if filtered else 1.0},
    ),
    st.integers(0, 2**31 - 1),
    st.floats(1e-9, 1.0),
    st.just(0.0) | st.floats(1e-6, 10.0),
    st.sampled_from(["k1", "kl", "k2+", "low_var_kl+", "full", "mse"]),
    st.sampled_from(["gae", "grpo"]),
    st.booleans(),
)


@given(configs)
def test_dump_and_load_give_an_equal_config_with_the_same_identity(config):
    plain = to_plain(config)
    again = TrialConfig.model_validate(plain)
    assert again == config
    assert to_plain(again) == plain
    assert config_hash(reordered(plain)) == config_hash(plain)


@given(
    configs,
    st.sampled_from(["disabled", "offline", "online"]),
    st.none() | st.text(min_size=1),
    st.integers(1, 99),
    st.floats(0.5, 64.0),
)
def test_excluded_keys_do_not_change_the_identity(config, wandb, project, every, cpus):
    plain = to_plain(config)
    other = deepcopy(plain)
    other["tracking"] = {"wandb": wandb, "project": project, "log_level": "debug"}
    other["checkpoint"] = {"every": every, "keep_last": every}
    other["resources"] |= {"cpus": cpus, "gpus": cpus}
    assert config_hash(other) == config_hash(plain)


def _another(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, dict):
        return {**value, "another": 0}
    return [*value, 0] if isinstance(value, list) else f"{value}x"


VARIANTS = (
    {},
    {"advantage": {"kind": "grpo"}, "reward": "success"},
    {"env": "frozen_lake"},
    {"env": "multihop_qa"},
    {"env": "arithmetic"},
    {"env": {"kind": "verified", "train": "p.jsonl", "verifier": "exact"}},
    {"env": "a:B"},
    *({"advantage": {"kind": kind}} for kind in ("gae_bilevel", "maxrl")),
    {"advantage": "a:f"},
    {"attribution": "adca", "advantage": "grpo"},
    {"attribution": "info_gain", "advantage": {"kind": "grpo", "ddof": 0}},
    {"loss": {"kind": "turn"}, "rollout_correction": {"kind": "tis"}},
    {"rollout_correction": {"kind": "icepop"}},
)


@each("key", LEAF_KEYS)
def test_every_other_key_changes_the_identity(key):
    configs = [to_plain(TrialConfig(policy={"model": "x"}, **parts)) for parts in VARIANTS]
    config = next(config for config in configs if key in flatten(config))
    flat = flatten(config)
    changed = nested({**flat, key: _another(flat[key])})
    assert (config_hash(changed) == config_hash(config)) is is_excluded(key)


def test_a_key_that_came_later_changes_no_identity_until_it_is_used():
    before = {name: section for name, section in CONFIG.items() if name != "trainer"}
    assert config_hash(CONFIG) == config_hash(before)
    remote = {**CONFIG, "trainer": {**CONFIG["trainer"], "backend": "tinker"}}
    assert config_hash(remote) != config_hash(before)
    older = {**CONFIG, "gate": {k: v for k, v in CONFIG["gate"].items() if k != "start_kl"}}
    measured = {**CONFIG, "gate": {**CONFIG["gate"], "start_kl": True}}
    assert config_hash(older) == config_hash(CONFIG) != config_hash(measured)


def test_excluded_keys_are_the_documented_ones():
    assert {key for key in LEAF_KEYS if is_excluded(key)} == {
        "tracking.wandb", "tracking.project", "tracking.log_level",
        "checkpoint.every", "checkpoint.keep_last", "resources.cpus", "resources.gpus",
        "resources.engine", "rollout.workers", "budget.train_wall_s", "budget.eval_wall_s",
        "trainer.timeout_s", "trainer.prices", "trainer.max_requests", "trainer.max_cost",
    }  # fmt: skip
    assert not is_excluded("resources.threads")
    assert not is_excluded("tracking_of_something")
    assert not is_excluded("checkpoint.every_other")
    assert all(EXCLUDED.values())


@each(
    ("a", "b", "same"),
    [
        ("kl", "k1", True),
        ("mse", "k2", True),
        ("low_var_kl", "k3", True),
        ("k2+", "k2", True),
        ("mse+", "k2", True),
        ("kl+", "k1+", True),
        ("k1+", "k1", False),
        ("low_var_kl+", "k3", False),
    ],
)
def test_two_names_of_one_kl_estimator_are_one_identity(a, b, same):
    left, right = (
        to_plain(TrialConfig(policy={"model": "x"}, loss={"kl_type": name})) for name in (a, b)
    )
    assert (config_hash(left) == config_hash(right)) is same


def test_identity_is_the_same_in_another_process():
    code = (
        "from rltune.spec.schema.trial import *; from rltune.spec.identity import config_hash;"
        "print(config_hash(to_plain(TrialConfig(policy={'model': 'tiny'}, "
        "env={'prompt': 'compact'}))))"
    )
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == config_hash(CONFIG)


def test_trial_id_is_slug_and_ten_hex():
    name = trial_id("kl_loss_coef=0.01-s0", "0123456789abcdef" * 4)
    assert name == "kl_loss_coef=0.01-s0-0123456789"


@given(st.text(max_size=200))
def test_slug_is_safe_as_a_folder_name(text):
    slug = safe_slug(text)
    assert 0 < len(slug) <= 60
    assert not set(slug) & set("/\\:*?\"<>| \n\t\0'")
    assert slug not in (".", "..")
    assert slug[0] not in ".-"


def test_diff_names_every_key_and_both_values():
    a = {"x": {"p": 1, "q": True, "r": [1, 2]}, "only_a": 1}
    b = {"x": {"p": 1.0, "q": 1, "r": [1, 3]}, "only_b": {}}
    assert diff_configs(a, b) == {
        "only_a": (1, MISSING),
        "only_b": (MISSING, {}),
        "x.q": (True, 1),  # true is not 1
        "x.r": ([1, 2], [1, 3]),
    }
    assert diff_configs(a, a) == {}


def test_a_config_from_before_a_key_had_the_value_of_all_trials_then():
    older, newer = {"rollout": {"groups": 2}}, {"rollout": {"groups": 2, "ahead": 0}}
    assert diff_configs(older, newer) == diff_configs(newer, older) == {}
    assert diff_configs(older, {"rollout": {"groups": 2, "ahead": 1}}) == {"rollout.ahead": (0, 1)}
