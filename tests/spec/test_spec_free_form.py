"""Mappings of a person's own (`env.arguments`): their keys are not paths, their values not ours."""

from pathlib import Path
from typing import get_origin

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rltune.comparability.check import check_sweep
from rltune.spec.derive import derive_config
from rltune.spec.identity import config_hash, flatten
from rltune.spec.keys import models_of, nested
from rltune.spec.paths import OPEN_SECTIONS, dotted, key_path
from rltune.spec.schema.env import CustomEnvConfig
from rltune.spec.schema.trial import TrialConfig

KEYS = st.text(alphabet='ab."\\ =:3é', max_size=4)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = {"weights": {"qwen2.5": 1.0, "3": "three", "qwen2": {"5": 2}}, "a.b": 1, "a": {"b": 2}}
TEXT = '{weights: {qwen2.5: 1.0, "3": three, qwen2: {"5": 2}}, a.b: 1, a: {b: 2}}'
ENV = "  env: {kind: custom, factory: 'm:E'}\n"
WRITTEN = {
    "hold, a dotted key": ENV + f"  env.arguments: {TEXT}\n",
    "hold, nested": f"  env: {{kind: custom, factory: 'm:E', arguments: {TEXT}}}\n",
    "hold, both": ENV
    + "  env.arguments: {a.b: 1, weights: {qwen2.5: 1.0, '3': three}}\n"
    + "  env.arguments.a: {b: 2}\n  env.arguments.weights.qwen2.5: 2\n",
    "hold, a short form": f"  env: m:E\n  env.arguments: {TEXT}\n",
    "hold, quoted paths": ENV
    + "  env.arguments: {weights: {qwen2.5: 1.0, '3': three, qwen2: {'5': 2}}}\n"
    + '  env.arguments."a.b": 1\n  env.arguments.a.b: 2\n',
}


def hold(text):
    return ("hold:\n", f"hold:\n{text}")


def moved(loaded):
    """Return what S1 and S2 say of a sweep whose other knobs are not all held."""
    return [found for found in check_sweep(loaded).errors if found.rule in ("S1", "S2")]


AXIS = (
    "  key: loss.kl_loss_coef\n  values: [0.0, 0.01, 0.1]\n  control: 0.0\n  coupled:\n"
    '    - key: loss.use_kl_loss\n      rule: "value > 0"\n      why: one switch\n'
)
OTHER = ["policy.model=mine"]


@pytest.fixture
def arguments(load):
    """Load the toy sweep with changes and return the arguments of each condition's env."""

    def of(*changes, **options):
        loaded = load(*changes, **{"overrides": OTHER, **options})
        return [condition.config["env"]["arguments"] for condition in loaded.conditions]

    return of


def test_the_open_sections_are_the_free_mappings_of_the_schema():
    def walk(model, prefix):
        for name, info in model.model_fields.items():
            if get_origin(info.annotation) is dict:
                yield f"{prefix}{name}"
            for inner in models_of(info.annotation):
                yield from walk(inner, f"{prefix}{name}.")

    assert set(walk(TrialConfig, "")) == set(OPEN_SECTIONS)


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_keys_with_dots_stay_keys(arguments, text):
    assert arguments(hold(text)) == [ARGUMENTS] * 3


def test_a_value_on_the_command_line_too(arguments):
    given = [*OTHER, "env=m:E", f"env.arguments={TEXT}"]
    assert arguments(overrides=given) == [ARGUMENTS] * 3
    given = [*OTHER, "env=m:E", 'env.arguments.w."q.5"=1', "env.arguments.w.q.5=2"]
    assert arguments(overrides=given) == [{"w": {"q.5": 1, "q": {"5": 2}}}] * 3


def test_an_estimator_of_ones_own_too(load):
    given = [f"advantage={{kind: custom, estimator: 'm:f', arguments: {TEXT}}}"]
    assert load(overrides=given).control.config["advantage"]["arguments"] == ARGUMENTS


def test_axis_values_too(load, arguments):
    axis = (
        f"  key: env.arguments\n  values:\n    none: {{a.b: 0}}\n    all: {TEXT}\n  control: none\n"
        "  why: one intervention\n"
    )
    changes = (hold(ENV), (AXIS, axis))
    assert arguments(*changes) == [{"a.b": 0}, ARGUMENTS]
    loaded = load(*changes, overrides=OTHER)
    assert loaded.axis_keys[:2] == ('env.arguments."a.b"', 'env.arguments.weights."qwen2.5"')
    assert loaded.where('env.arguments.weights."qwen2.5"').startswith("toy.yaml:")
    assert moved(loaded) == []


def test_an_axis_on_a_key_with_a_dot(load, arguments):
    axis = '  key: env.arguments.weights."qwen2.5"\n  values: [0.5, 1]\n  control: 0.5\n'
    changes = (hold(ENV + "  env.arguments: {weights: {qwen2: {'5': 2}}}\n"), (AXIS, axis))
    weights = [{"qwen2": {"5": 2}, "qwen2.5": value} for value in (0.5, 1)]
    assert arguments(*changes) == [{"weights": own} for own in weights]
    loaded = load(*changes, overrides=OTHER)
    assert [c.label for c in loaded.conditions] == ["qwen2.5=0.5", "qwen2.5=1"]
    assert moved(loaded) == []


def test_a_profile_sets_them_for_a_kind_of_env(arguments, tmp_path):
    folder = tmp_path / "configs" / "profiles"
    folder.mkdir(parents=True)
    text = f"policy: {{model: mine}}\nby_env:\n  custom: {{env.arguments: {TEXT}}}\n"
    (folder / "laptop.yaml").write_text(text)
    assert arguments(hold(ENV), overrides=[]) == [ARGUMENTS] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{w: {3: three}}",
            "env.arguments.w.3: 3 is not text, and JSON keeps no other keys. Put it in quotes, "
            "'3', if text will do.",
        ),
        ("{w: [{x: {1.5: a}}]}", 'env.arguments.w.0.x."1.5": 1.5 is not text, and JSON keeps no'),
        ("{true: a}", "env.arguments.true: true is not text, and JSON keeps no other keys."),
        ("{null: a}", "env.arguments.null: null is not text, and JSON keeps no other keys."),
        ("{a: !!set {b}}", "env.arguments.a: {'b'} is not a JSON value. Give numbers, text, true,"),
        ("{a.b: .nan}", 'env.arguments."a.b": nan is not a finite number. JSON keeps no other.'),
        ("{a: [1, .inf]}", "env.arguments.a.1: inf is not a finite number. JSON keeps no other."),
        ('{a: "\\ud800"}', "env.arguments.a: '\\ud800' is not Unicode text. Write whole char"),
    ],
)
def test_what_json_cannot_keep_is_refused_with_its_line(problems, text, message):
    found = problems(hold(ENV + f"  env.arguments:\n    {text}\n"), overrides=OTHER)
    assert [line.startswith(f"toy.yaml:8: hold.{message}") for line in found] == [True], found
    found = problems(overrides=[*OTHER, "env=m:E", f"env.arguments={text}"])
    assert len(found) == 1
    assert found[0].startswith("--set env.arguments=")
    assert message in found[0]


def test_the_section_alone_refuses_them_too():
    section = {"kind": "custom", "factory": "m:E", "arguments": {"w": {3: "three"}}}
    with pytest.raises(ValidationError, match="3 is not text, and JSON keeps no other keys"):
        CustomEnvConfig.model_validate(section)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a: 1, a: 2}", "toy.yaml:7: hold.env.arguments.a: 'a' is given twice, first in line 7."),
        ("{x: 1}\n  env.arguments.x: 2", "'env.arguments.x' is given twice (with dots, nested"),
        ('{a.b: 1}\n  env.arguments."a.b": 2', "'env.arguments.\"a.b\"' is given twice (with dots"),
        ("{a: 1}\n  env.arguments.a.b: 2", "'env.arguments.a.b' is given twice (with dots, nested"),
    ],
)
def test_what_is_given_twice_is_refused(problems, text, message):
    found = problems(hold(ENV + f"  env.arguments: {text}\n"), overrides=OTHER)
    assert message in found[0]


@pytest.mark.parametrize("text", ["env.arguments={a: 1, a: 2}", "env.arguments={a: {b: 1, b: 2}}"])
def test_no_entry_of_the_command_line_is_lost(problems, text):
    key = "a" if "a: 2" in text else "b"
    want = f"--set {text}: '{key}' is given twice. Keep one of them."
    assert problems(overrides=[*OTHER, text]) == [want]


def test_a_section_that_is_given_dotted_and_nested_is_refused(problems):
    text = "env={size: 6, boxes: 1, size.x: 2}"
    assert problems(overrides=[text]) == [
        f"--set {text}: 'env.size.x' is given twice (with dots and nested). Keep one of them."
    ]


def test_keys_that_are_one_to_python_are_refused(problems):
    text = "  values: {1: {a: 1}, 1.0: {a: 2}}\n  control: 1\n"
    axis = AXIS.replace("  values: [0.0, 0.01, 0.1]\n  control: 0.0\n", text)
    assert problems((AXIS, axis)) == ["toy.yaml:18: '1.0' is given twice. Keep one of them."]


@pytest.mark.parametrize(
    "text", ["{a: '${oc.env:HOME}'}", "{a: [{b: '${oc.env:HOME}'}]}", "{a.b: [['${seed}']]}"]
)
def test_no_resolver_runs_wherever_it_stands(problems, text):
    found = problems(hold(ENV + f"  env.arguments: {text}\n"), overrides=OTHER)
    assert len(found) == 1
    assert found[0].startswith("toy.yaml:7: hold.env.arguments.")


def test_differences_are_named_by_their_own_keys(load):
    axis = AXIS.replace("key: loss.kl_loss_coef", "key: env.arguments.w")
    axis = axis.split("  values")[0] + (
        "  values:\n    a: {x: 1}\n    b: {x: 2}\n  control: a\n  coupled:\n"
        "    - key: env.arguments.v.x\n      rule: \"1 if value == 'a' else 2\"\n      why: it is\n"
    )
    text = ENV + "  env.arguments: {v.x: 1, v: {y: 1}}\n"
    loaded = load(hold(text), (AXIS, axis), overrides=OTHER)
    assert [c.config["env"]["arguments"]["v"]["x"] for c in loaded.conditions] == [1, 2]
    assert moved(loaded) == []


def config_of(arguments):
    return {"env": {"kind": "custom", "factory": "m:E", "arguments": arguments}}


@given(st.dictionaries(KEYS, TREES, max_size=3))
def test_no_two_trees_have_the_same_keys_and_values(tree):
    flat = flatten(config_of(tree))
    assert nested(flat) == nested(config_of(tree)) == config_of(tree)
    assert all(dotted(key_path(key)) == key for key in flat)


def test_a_dot_and_a_branch_are_two_runs():
    trees = [{"a.b": 1}, {"a": {"b": 1}}, {"a.b": 1, "a": {"b": 1}}, {'"a.b"': 1}]
    assert len({config_hash(config_of(tree)) for tree in trees}) == len(trees)


def test_the_recorded_config_gives_the_same_one(load, tmp_path):
    loaded = load(hold(WRITTEN["hold, nested"]), overrides=OTHER)
    config = loaded.control.config
    path = Path(tmp_path / "config.yaml")
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    again = derive_config(
        yaml.safe_load(path.read_text()), source=str(path), overrides=[], seed=None
    )
    assert again == config
    assert config_hash(again) == config_hash(config)
    changed = derive_config(again, source=str(path), overrides=['env.arguments."a.b"=5'], seed=None)
    assert changed["env"]["arguments"] == {**ARGUMENTS, "a.b": 5}


def test_a_number_and_a_truth_value_are_two_keys():
    """To Python `1`, `1.0` and `True` are equal, and so would they be to a cache."""
    assert [dotted(("env", "arguments", key)) for key in (1, True, 1.0)] == [
        "env.arguments.1",
        "env.arguments.true",
        'env.arguments."1.0"',
    ]
