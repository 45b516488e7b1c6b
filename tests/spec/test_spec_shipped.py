"""Every YAML that ships loads, resolves and checks, with every profile that it allows."""

import json
from pathlib import Path

import pytest

from rltune.comparability.check import check_sweep
from rltune.comparability.protocol import check_protocol
from rltune.spec.keys import models_of
from rltune.spec.load import load_sweep
from rltune.spec.schema.advantage import Advantage
from rltune.spec.schema.sweep import ProtocolSpec, sweep_json_schema
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.yamlfile import YamlFile, read_yaml

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted((ROOT / "sweeps").rglob("*.yaml"))
CONFIGS = [  # cluster files are Ray's: tests/runner/test_runner_cluster_files.py
    path for path in sorted((ROOT / "configs").rglob("*.yaml")) if path.parent.name != "cluster"
]
FILTERED = [
    "S8.drop_changes_updates",
    "S8.softmax_scale",
    "S8.normaliser",
    "S8.batch_whitening",
]
EXPECTED_WARNINGS = {
    "a2tgpo_alpha": [],
    "a2tgpo_modes": [],
    "adca_alpha": [],
    "adca_scheme": [],
    "advantage_estimators": [],
    "collapse": [],
    "countdown": [],
    "entropy": [],
    "filter_on_drop": ["S8.drop_changes_updates"],
    "frozenlake_rv_filter_high_noise": FILTERED,
    "frozenlake_rv_filter_low_noise": FILTERED,
    "frozenlake_slip": ["S8.tasks"],
    "kl": [],
    "kl_estimator": ["S8.k1_loss"],
    "kl_k1_as_published": ["S8.k1_loss"],
    "math_ladder": [],
    "qa_kl": [],
    "quickstart": ["S4"],
    "rv_filter": FILTERED,
    "rv_filter_mode": ["S8.softmax_scale"],
    "sepa_schedule": [],
    "smollm2": ["S8.term_weights"],
    "textpolicy_pipeline": [],
    "tinker_kl": [],
    "turn_clip_beta": [],
}
ACCEPTED = {
    "frozenlake_rv_filter_high_noise": set(FILTERED),
    "frozenlake_rv_filter_low_noise": set(FILTERED),
    "frozenlake_slip": {"S8.tasks"},
    "rv_filter": set(FILTERED),
    "rv_filter_mode": {"S8.softmax_scale"},
    "smollm2": {"S8.term_weights"},
}
FIVE_SEEDS = (
    "a2tgpo_alpha",
    "a2tgpo_modes",
    "adca_alpha",
    "adca_scheme",
    "advantage_estimators",
    "collapse",
    "entropy",
    "filter_on_drop",
    "frozenlake_rv_filter_high_noise",
    "frozenlake_rv_filter_low_noise",
    "frozenlake_slip",
    "kl",
    "kl_estimator",
    "kl_k1_as_published",
    "math_ladder",
    "qa_kl",
    "rv_filter",
    "rv_filter_mode",
    "sepa_schedule",
    "textpolicy_pipeline",
    "turn_clip_beta",
)
SEEDS = {"quickstart": 2} | dict.fromkeys(FIVE_SEEDS, 5)  # others: 3
KINDS = ("sokoban", "frozen_lake", "multihop_qa", "arithmetic")
OF_A2TGPO = dict.fromkeys(("a2tgpo_alpha", "a2tgpo_modes", "turn_clip_beta"), 4)
PROFILE_COUNT = {
    "collapse": 1,
    "quickstart": 1,
    "smollm2": 1,
    "tinker_kl": 2,
    **OF_A2TGPO,
}  # others: laptop, gpu, paper


def test_nothing_is_missing_or_unknown():
    assert [path.stem for path in SWEEPS] == sorted(EXPECTED_WARNINGS)
    assert [str(path.relative_to(ROOT / "configs")) for path in CONFIGS] == [
        "arithmetic.yaml",
        "countdown.yaml",
        "frozen_lake.yaml",
        "multihop_qa.yaml",
        "profiles/a2tgpo.yaml",
        "profiles/gpu.yaml",
        "profiles/laptop.yaml",
        "profiles/paper.yaml",
        "profiles/smollm2.yaml",
        "profiles/tinker-local.yaml",
        "profiles/tinker.yaml",
        "protocols/figure3.yaml",
        "protocols/frozenlake_noise.yaml",
        "sokoban.yaml",
    ]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_sweep_is_comparable_in_every_profile(path):
    profiles = load_sweep(path).spec.profiles.allowed
    assert len(profiles) == PROFILE_COUNT.get(path.stem, 3)
    for profile in profiles:
        loaded = load_sweep(path, profile=profile)
        report = check_sweep(loaded)
        assert report.errors == ()
        assert [finding.code for finding in report.warnings] == EXPECTED_WARNINGS[path.stem]
        accepted = {finding.code for finding in report.warnings if finding.accepted_reason}
        assert accepted == ACCEPTED.get(path.stem, set())
        assert len(loaded.seeds) == SEEDS.get(path.stem, 3)
        for condition in loaded.conditions:
            assert TrialConfig.model_validate(condition.config).policy.model


@pytest.mark.parametrize("name", ["my_advantage", "my_env"])
def test_every_example_is_comparable_in_every_profile(name):
    path = ROOT / f"examples/{name}.yaml"
    for profile in load_sweep(path).spec.profiles.allowed:
        report = check_sweep(load_sweep(path, profile=profile))
        assert (report.errors, report.warnings) == ((), ())


def test_the_leak_is_warned_of_and_not_accepted():
    report = check_sweep(load_sweep(ROOT / "examples/leaked_levels.yaml"))
    assert report.errors == ()
    assert [(one.code, one.accepted_reason or "") for one in report.warnings] == [("S8.tasks", "")]


@pytest.mark.parametrize("profile", ["laptop", "gpu", "paper"])
def test_figure3_is_one_protocol(profile):
    names = ("kl", "entropy", "rv_filter")
    sweeps = [load_sweep(ROOT / f"sweeps/{name}.yaml", profile=profile) for name in names]
    assert [sweep.protocol.name for sweep in sweeps] == ["figure3"] * 3
    assert check_protocol(sweeps) == ()


@pytest.mark.parametrize("profile", ["laptop", "gpu", "paper"])
def test_both_noises_are_one_protocol(profile):
    names = ("high", "low")
    paths = [ROOT / f"sweeps/frozenlake_rv_filter_{name}_noise.yaml" for name in names]
    sweeps = [load_sweep(path, profile=profile) for path in paths]
    assert [sweep.protocol.name for sweep in sweeps] == ["frozenlake_noise"] * 2
    assert check_protocol(sweeps) == ()
    rates = [sweep.control.config["env"]["success_rate"] for sweep in sweeps]
    assert rates == [0.8, 0.98]  # as published


def _leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_key_is_commented(path):
    file = read_yaml(path, kind="config")
    assert isinstance(file, YamlFile)
    if path.parent.name == "protocols":
        assert ProtocolSpec.model_validate(file.data).name == path.stem
        return
    lines = file.text.splitlines()
    for key in _leaves(file.data):
        line = lines[file.lines[tuple(key.split("."))] - 1]
        assert "#" in line, f"{path.name}: {key}"


@pytest.mark.parametrize("name", [*KINDS, "countdown"])
def test_the_bases_spell_out_every_key_with_the_schema_default(name):
    base = read_yaml(ROOT / "configs" / f"{name}.yaml", kind="base file")
    env = name if name in KINDS else base.data["env"]
    defaults = TrialConfig(policy={"model": "other"}, env=env).model_dump(mode="json")
    defaults["policy"]["model"] = "tiny"
    assert base.data == defaults


def test_every_run_is_mirrored_without_an_account_unless_it_says_otherwise():
    config = load_sweep(ROOT / "sweeps/kl.yaml").control.config
    assert (config["tracking"]["wandb"], config["tracking"]["project"]) == ("offline", None)


def test_the_filter_of_several_keys_says_why_they_are_one():
    axis = load_sweep(ROOT / "sweeps/rv_filter.yaml").spec.axis
    assert "no filter at all" in axis.why


def test_paper_is_the_published_protocol():
    config = load_sweep(ROOT / "sweeps/kl.yaml", profile="paper").control.config
    full = TrialConfig(policy={"model": "x"}).model_dump(mode="json")["policy"]["lora"]
    assert full["rank"] == 0
    assert config["policy"] == {
        "model": "Qwen/Qwen2.5-3B", "dtype": "bfloat16", "template": "auto", "lora": full,
    }  # fmt: skip
    unshaped = TrialConfig(policy={"model": "x"}).model_dump(mode="json")["advantage"]["shaping"]
    assert (unshaped["gtpo_beta"], unshaped["hicra_alpha"]) == (0.0, 0.0)
    assert config["advantage"] == {"kind": "gae", "gamma": 1.0, "lam": 1.0, "shaping": unshaped}
    assert config["attribution"] == {"kind": "none"}
    assert config["budget"]["steps"] == 400
    assert (config["rollout"]["groups"], config["rollout"]["group_size"]) == (8, 16)
    assert (config["optim"]["mini_batch_size"], config["optim"]["micro_batch_size"]) == (32, 4)
    assert (config["optim"]["lr"], config["critic"]["lr"]) == (1e-6, 1e-5)
    assert config["gate"] == {
        "every": 10, "tasks": 512, "test_tasks": 512, "temperature": 0.5, "start_kl": False,
    }  # fmt: skip
    assert (config["env"]["max_turns"], config["env"]["max_actions_per_turn"]) == (5, 2)
    assert config["rollout"]["max_response_tokens"] == 400
    assert config["rollout"]["max_context"] == 3600
    assert (config["loss"]["clip_low"], config["loss"]["clip_high"]) == (0.2, 0.28)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("kl", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1]),
        ("kl_k1_as_published", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1]),
        ("entropy", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1]),
        ("rv_filter", [1.0, 0.98, 0.95, 0.9, 0.8, 0.6, 0.4, "nofilter"]),
        ("quickstart", [0.0, 0.01, 0.1]),
        (
            "frozenlake_rv_filter_high_noise",
            [1.0, 0.98, 0.95, 0.9, 0.8, 0.6, 0.4, "nofilter"],
        ),
        (
            "frozenlake_rv_filter_low_noise",
            [1.0, 0.98, 0.95, 0.9, 0.8, 0.6, 0.4, "nofilter"],
        ),
        ("frozenlake_slip", [1.0, 0.98, 0.95, 0.9, 0.8, 0.5, 0.0]),  # slip 0, 2, 5, ... 100 %
        ("qa_kl", [0.0, 0.1, 1.0]),
        ("countdown", [0.0, 0.001, 0.01]),
        ("a2tgpo_alpha", [0.0, 0.1, 0.3, 0.9, 1.0]),  # 0.3 as released, 1.0 as in the paper
        ("a2tgpo_modes", ["none", "joint", "separate", "turn-group", "turn-group-v1d"]),
        ("adca_alpha", [0.0, 0.05, 0.1, 0.2, 0.5, 1.0]),
        ("adca_scheme", ["decouple", "allocation"]),
        (
            "advantage_estimators",
            [
                "gae",
                "gae_bilevel",
                "grpo",
                "rloo",
                "maxrl",
                "reinforce_pp",
                "reinforce_pp_baseline",
            ],
        ),
        ("math_ladder", ["grpo", "maxrl", "maxrl_gtpo", "maxrl_gtpo_sepa", "maxrl_gtpo_hicra"]),
        ("rv_filter_mode", ["softmax", "mass"]),
        ("sepa_schedule", ["none", "linear", "auto"]),
        (
            "textpolicy_pipeline",
            ["grpo_center", "maxrl", "maxrl_gtpo", "maxrl_gtpo_hicra", "maxrl_gtpo_hicra_sepa"],
        ),
        ("turn_clip_beta", [0.0, 0.1, 0.3, 0.6]),
    ],
)
def test_axis_values_are_the_published_ones(name, values):
    loaded = load_sweep(ROOT / f"sweeps/{name}.yaml")
    assert [condition.value for condition in loaded.conditions] == values


def test_json_schema_describes_every_key_of_a_sweep_file():
    schema = sweep_json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$defs"]["Metric"]["properties"]["name"]["pattern"].startswith("^heldout/")
    parts = [schema, *schema["$defs"].values()]
    for part in parts:
        assert part["additionalProperties"] is False
        for name, info in part["properties"].items():
            assert info.get("description"), f"{part['title']}.{name}"
    assert set(schema["required"]) == {"name", "question", "base", "axis", "seeds"}


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("textpolicy_pipeline", ["....", "x...", "xx..", "xxx.", "xxxx"]),
        ("math_ladder", ["....", "x...", "xx..", "xx.x", "xxx."]),
    ],
)
def test_the_textpolicy_rungs_add_one_stage_each(name, stages):
    rungs = load_sweep(ROOT / f"sweeps/{name}.yaml").conditions
    on = []
    for rung in rungs:
        advantage = rung.config["advantage"]
        shaping = advantage["shaping"]
        assert advantage["outcome"] == "success"  # maxrl is undefined for negative rewards
        own = (
            advantage["kind"] == "maxrl",
            shaping["gtpo_beta"] == 0.1,
            shaping["hicra_alpha"] == 0.2,
            shaping["sepa"]["schedule"] == "linear",
        )
        on.append("".join("x" if stage else "." for stage in own))
    assert on == stages


def test_every_estimator_stands_in_its_sweep_once():
    conditions = load_sweep(ROOT / "sweeps/advantage_estimators.yaml").conditions
    kinds = {model.model_fields["kind"].default for model in models_of(Advantage)} - {"custom"}
    kinds -= {"grpo_center"}  # rloo up to a factor, which AdamW divides out
    assert {condition.config["advantage"]["kind"] for condition in conditions} == kinds


def test_adaptive_clipping_goes_with_the_released_mode_alone():
    conditions = load_sweep(ROOT / "sweeps/a2tgpo_modes.yaml").conditions
    betas = [condition.config["loss"]["turn_clip_beta"] for condition in conditions]
    assert betas == [0.0, 0.0, 0.0, 0.0, 0.3]


def test_every_config_key_has_a_sentence():
    schema = TrialConfig.model_json_schema()
    count = 0
    for part in [schema, *schema["$defs"].values()]:
        for name, info in part["properties"].items():
            if "$ref" not in info:  # a section: described by its class
                assert info["description"].endswith("."), f"{part['title']}.{name}"
                count += 1
    assert count > 90
