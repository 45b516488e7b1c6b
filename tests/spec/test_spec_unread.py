"""What base and profile say of something that a later layer switches off is not refused."""

from pathlib import Path

import pytest

from rltune.errors import SpecError
from rltune.spec.derive import derive_config
from rltune.spec.load import load_sweep

ROOT = Path(__file__).parents[2]
QA = ROOT / "sweeps" / "qa_kl.yaml"
MODEL = "policy.model=mine"


def env_of(sweep, *overrides, profile="laptop"):
    return load_sweep(sweep, profile=profile, overrides=overrides).control.config["env"]


@pytest.mark.parametrize("profile", ["laptop", "gpu", "paper"])
def test_questions_of_a_file_have_their_own_hops(profile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # from whatever folder
    env = env_of(QA, "env.questions=q.json", MODEL, profile=profile)
    assert (env["hops"], env["kinds"]) == ([2, 3, 4], ["bridge", "comparison"])
    assert env["questions"] == "q.json"


def test_the_closed_world_has_those_of_the_profile():
    env = env_of(QA)
    assert (env["hops"], env["kinds"], env["k"]) == ([2], ["bridge"], 1)
    assert env_of(QA, "env.questions=q.json", "env.questions=null") == env
    assert env_of(QA, "env.questions=q.json", MODEL)["k"] == 1  # of files, too


def test_levels_of_a_file_have_their_own_depth_and_compact_prompts_no_observation():
    kl = ROOT / "sweeps" / "kl.yaml"
    paper = env_of(kl, profile="paper")
    assert (paper["search_depth"], paper["observation"]) == (300, "grid_coord")
    env = env_of(kl, "env.levels=l.txt", profile="paper")
    assert (env["search_depth"], env["observation"]) == (100, "grid_coord")
    assert env_of(kl, "env.prompt=compact", profile="paper")["observation"] == "grid"


@pytest.mark.parametrize(
    "given",
    [("env.questions=q.json", "env.hops=[2]"), ("env.hops=[2]", "env.questions=q.json")],
)
def test_what_a_person_says_of_it_is_refused(given):
    with pytest.raises(SpecError, match=r"env\.hops: \[2\] has no effect: env\.questions names"):
        env_of(QA, *given, MODEL)


def test_what_is_held_is_refused(load, problems):
    held = ("hold:\n", "hold:\n  env.search_depth: 50\n")
    assert load(held).control.config["env"]["search_depth"] == 50
    assert problems(held, overrides=["env.levels=l.txt"]) == [
        "toy.yaml:6: hold.env.search_depth: 50 has no effect: env.levels names a file. "
        "Leave it at 100."
    ]


def test_a_child_of_a_trial_may_have_other_questions():
    config = load_sweep(QA).control.config
    child = derive_config(
        config, source="config.yaml", overrides=["env.questions=q.json", MODEL], seed=None
    )
    assert child["env"]["hops"] == [2, 3, 4]
    assert derive_config(config, source="config.yaml", overrides=[], seed=None) == config
