"""A6: rollouts of the age that the config asks for, and one age in all conditions."""

from types import SimpleNamespace

import pytest

from rltune.comparability.audit_staleness import STALENESS, same_staleness


def trial(name, ages, *, ahead=0):
    """Return a record of a trial with the staleness of each step; None records nothing."""
    rows = [{"step": step} | ({} if age is None else {STALENESS: age}) for step, age in ages]
    config = {"rollout": {} if ahead is None else {"ahead": ahead}}
    return SimpleNamespace(
        spec=SimpleNamespace(trial_id=name, config=config), metrics=({"step": 0}, *rows)
    )


NEW = list(enumerate([None, None, None], start=1))
OLD = list(enumerate([0.0, 1.0, 1.0], start=1))


def found(*records):
    return [f"{finding.severity}: {finding.message}" for finding in same_staleness(records)]


@pytest.mark.parametrize("ahead", [0, None], ids=["on-policy", "a config from before the key"])
def test_on_policy_records_nothing_or_zeros(ahead):
    zeros = list(enumerate([0.0, 0.0, 0.0], start=1))
    assert found(trial("a", NEW, ahead=ahead), trial("b", zeros, ahead=ahead)) == []


def test_ahead_is_one_step_old_from_the_second_step_on():
    assert found(trial("a", OLD, ahead=1), trial("b", OLD[:2], ahead=1)) == []


@pytest.mark.parametrize(
    ("ages", "ahead", "step"),
    [(OLD, 0, 2), (NEW, 1, 2), ([*OLD[:2], (3, 0.0)], 1, 3), ([(1, 1.0), *OLD[1:]], 1, 1)],
)
def test_another_age_than_was_asked_for_is_an_error(ages, ahead, step):
    right = trial("right", OLD if ahead else NEW, ahead=ahead)
    assert found(right, trial("wrong", ages, ahead=ahead)) == [
        f"error: {STALENESS} is not what rollout.ahead asks for, from step {step} on, in wrong: "
        "they learned from rollouts of another age."
    ]


def test_ages_that_the_axis_moves_are_a_warning():
    assert found(trial("a", NEW), trial("b", OLD, ahead=1)) == [
        "warning: rollouts are not of one age: rollout.ahead is 0 in a; 1 in b."
    ]
