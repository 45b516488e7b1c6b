"""Case B10: sweep values that select the same groups are one condition, and the planner says so."""

from pathlib import Path

import pytest

from rltune.forecast.filter_simulation import same_selection
from rltune.spec.load import load_sweep

SWEEPS = Path(__file__).parents[2] / "sweeps"


def same(name, *overrides, profile="paper", **filter_keys):
    """Return what is the same in a shipped sweep, some keys of its filter replaced."""
    loaded = load_sweep(SWEEPS / f"{name}.yaml", profile=profile, overrides=overrides)
    configs = {
        str(condition.value): {
            **condition.config,
            "rollout_filter": {**condition.config["rollout_filter"], **filter_keys},
        }
        for condition in loaded.conditions
    }
    return same_selection(configs)


def test_rewards_of_0_and_1_make_one_condition_of_four():
    """0.98, 0.95 and 0.9 of a softmax over eight stds of at most 0.52 keep all that is not zero."""
    assert same("frozenlake_rv_filter_low_noise") == [("1.0", "0.98", "0.95", "0.9")]


def test_larger_rewards_tell_them_apart():
    assert same("rv_filter") == []


def test_the_share_of_the_mass_does_not_depend_on_the_scale():
    """0.9 then drops something; the last 5 % of the mass are less than one group still."""
    by_mass = same("frozenlake_rv_filter_low_noise", mode="mass")
    assert by_mass == same("rv_filter", mode="mass") == [("1.0", "0.98", "0.95")]


def test_a_reward_of_one_s_own_counts_as_0_and_1():
    assert same("rv_filter", "reward=success") == [("1.0", "0.98", "0.95", "0.9")]


@pytest.mark.parametrize("metric", ["length", "entropy"])
def test_what_looks_at_no_reward_is_not_compared(metric):
    assert same("frozenlake_rv_filter_low_noise", metric=metric) == []


def test_other_groups_are_not_compared():
    loaded = load_sweep(SWEEPS / "kl.yaml")
    one, other = (condition.config for condition in loaded.conditions[:2])
    assert same_selection({"a": one, "b": other}) == [("a", "b")]
    fewer = {**other, "rollout": {**other["rollout"], "groups": 8}}
    assert same_selection({"a": one, "b": fewer}) == []
