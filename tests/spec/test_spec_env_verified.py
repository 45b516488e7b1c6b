"""`env: verified`: its section, the verifier's short form, and what is refused."""

import pytest
from cases import each
from pydantic import ValidationError

from rltune.spec.custom_code import import_paths
from rltune.spec.resolve import Layer, merge_layers
from rltune.spec.schema.env_verifier import OPTIONS
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.spec.shortforms import config_tree
from rltune.spec.unread import without_unread
from rltune_envs.verifiers import VERIFIERS


def env_of(**keys):
    env = {"kind": "verified", "train": "p.jsonl", "verifier": "number", **keys}
    return TrialConfig.model_validate({"env": env, "policy": {"model": "some/model"}}).env


def test_every_verifier_has_a_name_in_the_schema():
    assert tuple(OPTIONS) == tuple(VERIFIERS)


def test_a_verifier_by_its_name_alone():
    assert env_of(verifier="boxed") == env_of(verifier={"kind": "boxed"})
    assert env_of(verifier="boxed").verifier.options() == {"kind": "boxed", "compare": "value"}


def test_a_score_of_ones_own_is_custom_code():
    env = env_of(verifier="my_pkg.my_mod:score", answer_column=None)
    assert env.verifier.options() == {"kind": "my_pkg.my_mod:score"}
    config = TrialConfig.model_validate(
        {"env": env.model_dump(), "policy": {"model": "some/model"}}
    )
    assert list(import_paths(to_plain(config))) == [("env.verifier.kind", "my_pkg.my_mod:score")]


def test_a_generator_brings_its_verifier():
    config = TrialConfig.model_validate(
        {
            "env": {"kind": "verified", "source": "reasoning_gym:gcd", "arguments": {"a": 1}},
            "policy": {"model": "some/model"},
        }
    )
    assert config.env.verifier.options() == {"kind": "reasoning_gym", "extract": "tags"}
    assert (
        env_of(train=None, source="reasoning_gym:gcd", verifier="number").verifier.kind == "number"
    )


def test_another_source_leaves_the_verifier_as_an_earlier_layer_has_it():
    first = {"kind": "verified", "source": "reasoning_gym:gcd", "verifier": "number"}
    layers = [
        Layer({"env": first}, "base"),
        Layer({"env": {"source": "reasoning_gym:lcm"}}, "axis"),
    ]
    env = merge_layers(layers, [])["env"]
    assert (env["source"], env["verifier"]) == ("reasoning_gym:lcm", {"kind": "number"})


def countdown_with(**given):
    tags = {"kind": "reasoning_gym", "extract": "whole"}
    arguments = {"max_value": 99}
    env = {"source": "reasoning_gym:countdown", "arguments": arguments, "verifier": tags}
    base, hold = Layer({"env": env}, "base"), Layer({"env": given}, "hold")
    return merge_layers([*without_unread([base], [hold]), hold], [])["env"]


def test_another_verifier_drops_the_keys_of_that_of_the_base():
    tags = countdown_with()["verifier"]
    assert countdown_with(verifier="number")["verifier"] == {"kind": "number"}
    assert countdown_with(verifier={"kind": "reasoning_gym"})["verifier"] == tags
    assert countdown_with(verifier={"extract": "boxed"})["verifier"] == {**tags, "extract": "boxed"}
    assert countdown_with(verifier="number")["arguments"] == {"max_value": 99}


def test_another_source_drops_the_arguments_of_that_of_the_base():
    same, other = "reasoning_gym:countdown", "reasoning_gym:gcd"
    assert countdown_with(source=same)["arguments"] == {"max_value": 99}
    assert "arguments" not in countdown_with(source=other)
    assert "arguments" not in countdown_with(source=None)
    assert countdown_with(source=other, arguments={"a": 1})["arguments"] == {"a": 1}
    assert countdown_with(source=other)["verifier"] == countdown_with()["verifier"]


def test_what_is_held_of_a_verifier_stays_beside_another_kind():
    hold, condition = {"kind": "exact", "ignore_case": True}, {"kind": "number"}
    layers = [Layer({"env": {"verifier": one}}, "") for one in (hold, condition)]
    merged = merge_layers(layers, [])["env"]["verifier"]
    assert merged == {"kind": "number", "ignore_case": True}  # which is then refused by name


def test_a_verifier_is_held_in_its_short_form_too():
    for given in ({"env.verifier": "number"}, {"env": {"verifier": "number"}}):
        assert config_tree(given) == {"env": {"verifier": {"kind": "number"}}}


def test_a_template_may_hold_the_name_of_the_answer_in_braces():
    assert env_of(template="{question} Fill in {{answer}}.").template.endswith("{{answer}}.")


@each(
    ("keys", "message"),
    [
        ({"verifier": "box"}, "'box' is not a verifier."),
        ({"verifier": {"kind": "exact", "tolerance": 0.1}}, "0.1 has no effect: verifier exact "
         "does not read it."),
        ({"verifier": "regex"}, "null finds no answer."),
        ({"verifier": {"kind": "regex", "pattern": "("}}, "'(' is not a regular expression"),
        ({"verifier": {"kind": "regex", "pattern": "x"}}, "'x' has 0 groups."),
        ({"answer_column": None}, "null leaves verifier number nothing to compare with."),
        ({"verifier": "multiple_choice"}, "null leaves verifier multiple_choice without choices."),
        ({"choices_column": "c"}, "'c' has no effect: verifier number does not read choices."),
        ({"template": "{question}{answer}"}, "it shows {answer}, the answer."),
        ({"feedback": "No."}, "'No.' has no effect: env.max_turns is 1"),
        ({"heldout": "h.jsonl", "heldout_share": 0.3}, "0.3 has no effect: env.heldout names a "
         "file."),
        ({"heldout_share": 0.5, "test_share": 0.5}, "the shares add up to 1"),
        ({"train": None}, "null leaves no problems."),
        ({"arguments": {"a": 1}}, "{'a': 1} has no effect: env.source is null."),
        ({"verifier": "reasoning_gym"}, "and env.source is null."),
        ({"source": "reasoning_gym:gcd"}, "'p.jsonl' has no effect: env.source generates the "
         "problems."),
        ({"source": "reasoning_gym:gcd", "train": None, "test_share": 0.3}, "0.3 has no effect"),
        ({"source": "reasoning_gym:gcd", "train": None, "verifier": "multiple_choice"},
         "multiple_choice needs choices, which generated problems do not have."),
        ({"source": "gcd", "train": None}, "'^reasoning_gym:\\w+$'"),
    ],
)  # fmt: skip
def test_what_contradicts_itself(keys, message):
    with pytest.raises(ValidationError) as caught:
        env_of(**keys)
    assert message in str(caught.value)
