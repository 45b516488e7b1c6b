"""Children of a trial: whether their metric counts beside their parent's."""

import copy

import pytest

from rltune.runner.child import not_comparable
from rltune.spec.schema.trial import TrialConfig, to_plain


@pytest.fixture
def config():
    parts = {"env": {"kind": "sokoban"}, "policy": {"model": "x"}}
    return to_plain(TrialConfig.model_validate(parts))


def test_a_parent_from_before_a_key_was_evaluated_as_its_child(config):
    parent = copy.deepcopy(config)
    del parent["gate"]["start_kl"], parent["rollout"]["ahead"]
    assert not not_comparable(parent, config)


@pytest.mark.parametrize(
    ("section", "key", "value", "is_other"),
    [
        ("gate", "tasks", 7, True),
        ("gate", "start_kl", True, False),  # it measures besides
        ("gate", "every", 7, False),
        ("env", "format_penalty", -0.7, True),
        ("optim", "lr", 0.7, False),
    ],
)
def test_another_evaluation_is_not_comparable(config, section, key, value, is_other):
    child = {**config, section: {**config[section], key: value}}
    why = "evaluated differently from its parent: env, reward or gate differ"
    assert not_comparable(config, child) == (why if is_other else "")
