"""The env and the reward section: variants, short forms, profiles by kind, and clear refusals."""

from pathlib import Path

import pytest

from rltune.comparability.check import check_sweep
from rltune.comparability.knobs import is_drawing_key, is_task_key
from rltune.spec.keys import ENV_KINDS, config_keys, is_config_key
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.spec.warmstart_data import TAUGHT_ENVS

LAKE = ("base: sokoban", "base: frozen_lake")
HELD = ("  loss.kl_type: k2", "  loss.kl_type: k2\n  env.success_rate: 0.8")
QA = ("base: sokoban", "base: multihop_qa")
OWN = ("  loss.kl_type: k2", "  loss.kl_type: k2\n  env: my_pkg.my_mod:MyEnv")


def held(line):
    return ("  loss.kl_type: k2", f"  loss.kl_type: k2\n  {line}")


def test_every_kind_has_its_keys():
    assert ENV_KINDS == (
        "sokoban",
        "frozen_lake",
        "multihop_qa",
        "arithmetic",
        "verified",
        "custom",
    )
    for key in ("env.levels", "env.success_rate", "env.hops", "env.factory", "reward.terms"):
        assert config_keys()[key]
    assert "reward.terms.score" not in config_keys()
    assert is_config_key("env.arguments.size")
    assert not is_config_key("env.argument.size")


# --- success_rate: one unit ---------------------------------------------------------------------

AMBIGUOUS = {
    "1": "1 may mean 1 % or always. Write 1.0 for always, or 0.01 for 1 %.",
    "80": "80 looks like a percentage; this is a probability. Write 0.8.",
    "2.0": "2.0 looks like a percentage; this is a probability. Write 0.02.",
    "180": "180 looks like a percentage; this is a probability. Give a number from 0.0 to 1.0.",
    "-0.1": "-0.1 is out of range. Give at least 0.0.",
    "true": "true is not a number.",
    "80%": "'80%' is not a number.",
}


@pytest.mark.parametrize("value", AMBIGUOUS)
def test_an_ambiguous_success_rate_is_refused_wherever_it_stands(problems, value):
    said = AMBIGUOUS[value]
    own = f"env.success_rate={value}"
    assert problems(LAKE, overrides=[own]) == [f"--set {own}: env.success_rate: {said}"]
    assert problems(LAKE, held(f"env.success_rate: {value}")) == [
        f"toy.yaml:7: hold.env.success_rate: {said}"
    ]


def test_an_ambiguous_success_rate_is_refused_as_an_axis_value(problems):
    lines = problems(LAKE, *axis("env.success_rate", "[1, 0.8]", "0.8"))
    assert lines == [f"toy.yaml:20: axis.values.0: env.success_rate: {AMBIGUOUS['1']}"]


@pytest.mark.parametrize(("text", "value"), [("1.0", 1.0), ("0.01", 0.01), ("0", 0.0)])
def test_a_clear_success_rate_is_a_probability(load, text, value):
    config = load(LAKE, held(f"env.success_rate: {text}")).control.config
    assert config["env"]["success_rate"] == value
    assert isinstance(config["env"]["success_rate"], float)
    assert to_plain(TrialConfig.model_validate(config)) == config  # 1.0 is not taken for 1


def axis(key, values, control):
    """Return the edits that make another key the axis of the toy sweep."""
    old = "axis:\n  key: loss.kl_loss_coef\n  values: [0.0, 0.01, 0.1]\n  control: 0.0\n"
    off = "  loss.use_kl_loss: false\n  loss.kl_loss_coef: 0.0\n"
    new = f"axis:\n  key: {key}\n  values: {values}\n  control: {control}\n"
    coupled = "  coupled:\n    - key: loss.use_kl_loss\n"
    rule = '      rule: "value > 0"\n      why: one switch\n'
    return (old, off + new), (coupled, ""), (rule, "")


# --- what hangs together ------------------------------------------------------------------------

REFUSED = {
    "env={kind: sokoban, min_difficulty: 11}": "env.min_difficulty: 11 actions at least and 10 at "
    "most leave no task. Give at most 10, or raise env.max_difficulty.",
    "env={kind: sokoban, min_difficulty: 9, max_difficulty: 8}": "env.min_difficulty: 9 actions at "
    "least and 8 at most leave no task. Give at most 8, or raise env.max_difficulty.",
    "env={kind: sokoban, levels: a.txt, size: 7}": "env.size: 7 has no effect: env.levels names a "
    "file. Leave it at 6.",
    "env={kind: sokoban, observation: coord}": "env.observation: 'coord' has no effect: env.prompt "
    "is compact. Leave it at 'grid'.",
    "env={kind: sokoban, symbols: letters}": "env.symbols: 'letters' has no effect: env.prompt is "
    "compact. Leave it at 'standard'.",
    "env={kind: frozen_lake, max_actions: 11}": "env.max_actions: 11 actions can never be reached "
    "in 5 turns of 2. Give at most 10.",
    "env={kind: multihop_qa, max_searches: 6}": "env.max_searches: 6 searches leave no turn of 6 "
    "to answer in. Give at most 5, or raise env.max_turns.",
    "env={kind: multihop_qa, hops: []}": "env.hops: [] is empty. Give at least one.",
    "env={kind: multihop_qa, hops: [2, 2]}": "env.hops: 2 is given twice. Remove the duplicate.",
    "env={kind: multihop_qa, hops: [5]}": "env.hops.0: 5 is out of range. Give at most 4.",
    "env={kind: multihop_qa, corpus: all}": "env.corpus: 'all' has no effect: env.questions is "
    "null: the closed world. Leave it at 'own'.",
    "env={kind: multihop_qa, eval: {nq: nq.jsonl}}": "env.eval: nq cannot be measured beside the "
    "closed world. Give env.questions a file to train on.",
    "env={kind: multihop_qa, retriever: bm52}": "env.retriever: 'bm52' has the wrong form. What "
    "searches: bm25 in the process, or the URL of a /retrieve service.",
    "env={kind: multihop_qa, questions: a.json}": "env.questions: policy.model 'tiny' knows the "
    "words of the closed world only. Set it to null, or choose another policy.model.",
    "env={kind: multihop_qa, questions: a.json, hops: [2]}": "env.hops: [2] has no effect: "
    "env.questions names a file, and this is of the closed world. Leave it at [2, 3, 4].",
    "reward={terms: []}": "reward.terms: [] holds no score. Give at least one.",
    "reward={terms: [{score: 'a:f'}, {score: 'b:f'}]}": "reward.terms: 'f' is given twice. Remove "
    "the duplicate; two functions need different names.",
    "reward={terms: [{score: success, wight: 1.0}]}": "reward.terms.0.wight: 'wight' is not a key "
    "of reward.terms.0. Choose one of score, weight. Did you mean 'weight'?",
}


@pytest.mark.parametrize("override", REFUSED)
def test_contradictions_are_refused(problems, override):
    assert problems(overrides=[override]) == [f"--set {override}: {REFUSED[override]}"]


def test_there_is_no_tiny_policy_for_an_env_of_ones_own(problems, load):
    assert problems(OWN)[0].endswith(
        "policy.model: 'tiny' exists for sokoban, frozen_lake, multihop_qa, arithmetic, not for an "
        "env of kind 'custom'. Give a Hugging Face id or a folder."
    )
    config = load(OWN, overrides=["policy.model=mine"]).control.config
    assert config["env"] == {
        "kind": "custom", "factory": "my_pkg.my_mod:MyEnv", "arguments": {},
        "prompt": "compact", "train_tasks": 4096, "split_seed": 0,
    }  # fmt: skip


# --- short forms and layers ---------------------------------------------------------------------


def test_short_forms_are_the_long_ones(load):
    mine = ["policy.model=mine"]
    long = "env: {kind: custom, factory: my_pkg.my_mod:MyEnv}"
    a, b = (load(held(text), overrides=mine).control for text in (OWN[1].split("  ")[-1], long))
    assert a.config == b.config
    taskset = "env: {kind: verifiers, id: sums, config: {largest: 9}, train_tasks: 40}"
    config = load(held(taskset), overrides=[*mine, "env.arguments.rows=99"]).control.config
    assert config["env"] == {
        "kind": "custom", "factory": "rltune_envs.taskset:TasksetEnv", "train_tasks": 40,
        "arguments": {"id": "sums", "config": {"largest": 9}, "rows": 99},
        "prompt": "compact", "split_seed": 0,
    }  # fmt: skip
    score = "my_pkg.my_mod:score"
    long = f"reward: {{terms: [{{score: '{score}', weight: 1.0}}], threshold: 1.0}}"
    a, b = (load(held(text)).control for text in (f"reward: {score}", long))
    assert a.config == b.config
    assert a.config["reward"] == {
        "terms": [{"score": score, "weight": 1.0}],
        "threshold": 1.0, "turn_rewards": "none", "format_penalty": 0.0,
    }  # fmt: skip
    assert load().control.config["reward"] is None


def test_layers_merge_into_short_forms(load):
    options = {"overrides": ["policy.model=mine", "env.arguments.size=3", "reward.threshold=0.5"]}
    config = load(held("reward: a:f\n  env: b:E"), **options).control.config
    assert config["env"]["arguments"] == {"size": 3}
    assert config["env"]["factory"] == "b:E"
    assert config["reward"]["threshold"] == 0.5
    assert config["reward"]["terms"][0]["score"] == "a:f"


def test_another_kind_keeps_only_what_every_kind_has(load):
    overrides = ["env.train_tasks=7", "env=frozen_lake"]
    config = load(overrides=overrides).control.config
    assert config["env"] == to_plain(
        TrialConfig(
            env={"kind": "frozen_lake", "prompt": "compact", "train_tasks": 7},
            policy={"model": "tiny"},
        )
    )["env"]  # fmt: skip
    assert config["env"]["size"] == 4  # not the 6 of sokoban.yaml


PROFILE = """\
env.prompt: compact
policy: {model: tiny}
budget: {steps: 1}
by_env:
  frozen_lake:
    budget.steps: 2
    gate: {every: 3}
  multihop_qa:
    env: {max_turns: 4, max_searches: 3}
"""


@pytest.fixture
def profile(load):
    """Return a writer of the laptop profile beside the toy sweep."""
    load()
    folder = Path("configs/profiles")
    folder.mkdir(parents=True)
    return lambda text: (folder / "laptop.yaml").write_text(text, encoding="utf-8")


def test_a_profile_has_keys_for_one_kind_of_env(load, profile):
    profile(PROFILE)
    assert load().control.config["budget"]["steps"] == 1
    lake = load(LAKE, HELD).control.config
    assert (lake["budget"]["steps"], lake["gate"]["every"]) == (2, 3)
    assert load(QA).control.config["env"]["max_turns"] == 4
    hold = load(LAKE, HELD, held("budget.steps: 5")).control.config
    assert (hold["budget"]["steps"], hold["gate"]["every"]) == (5, 3)  # hold is stronger
    by_hold = load(held("env: {kind: frozen_lake, success_rate: 0.8}")).control.config
    assert by_hold["budget"]["steps"] == 2


def test_mistakes_in_the_part_of_a_kind_have_their_line(problems, profile):
    profile(PROFILE.replace("budget.steps: 2", "budget.step: 2"))
    assert problems(LAKE, HELD) == [
        "configs/profiles/laptop.yaml:6: by_env.frozen_lake.budget.step: 'step' is not a key of "
        "budget. Choose one of steps, train_wall_s, eval_wall_s. Did you mean 'steps'?"
    ]
    profile(PROFILE.replace("frozen_lake:", "frozenlake:"))
    assert problems() == [
        "configs/profiles/laptop.yaml:5: by_env.frozenlake: 'frozenlake' is not a kind of env. "
        "Choose one of sokoban, frozen_lake, multihop_qa, arithmetic, verified, custom. "
        "Did you mean 'frozen_lake'?"
    ]
    profile("env.prompt: compact\npolicy: {model: tiny}\nby_env: 3\n")
    assert problems() == [
        "configs/profiles/laptop.yaml:3: by_env: 3 is not a mapping of keys. "
        "Give kind of env -> keys."
    ]


# --- comparability ------------------------------------------------------------------------------


def test_what_changes_the_tasks():
    for key in ("env.size", "env.success_rate", "env.k", "env.arguments.x", "gate.test_tasks"):
        assert is_task_key(key)
    for key in ("env.prompt", "env.observation", "env.symbols", "env.format_penalty", "seed"):
        assert not is_task_key(key)
    assert is_task_key("reward.threshold")
    assert not is_task_key("reward.format_penalty")
    assert is_drawing_key("env.hops")
    assert is_drawing_key("env.max_actions")
    for key in ("env.success_rate", "env.max_turns", "env.k", "reward.terms"):
        assert not is_drawing_key(key)


def test_the_slip_of_a_lake_must_be_held(load):
    (error,) = check_sweep(load(LAKE)).errors
    assert error.rule == "S3"
    assert "Write under hold: env.success_rate: 1.0." in error.remedy
    assert check_sweep(load(LAKE, HELD)).errors == ()
    # a section that is held in a word holds its kind, and no key in it
    (error,) = check_sweep(load(held("env: frozen_lake"))).errors
    assert error.rule == "S3"


def test_the_slip_changes_the_ceiling_and_not_the_maps(load):
    found = check_sweep(load(LAKE, *axis("env.success_rate", "[0.9, 0.8]", "0.8"))).warnings
    assert [finding.code for finding in found] == ["S8.tasks"]  # and not S8.seen_tasks


def test_another_reward_is_another_success(load):
    def codes(values, control):
        found = check_sweep(load(*axis("reward", values, control)))
        assert found.errors == ()
        return [finding.code for finding in found.warnings]

    assert codes("[null, 'a:f']", "null") == ["S8.success"]
    assert codes("['a:f', 'b:g']", "'a:f'") == ["S8.success"]


@pytest.mark.parametrize("kind", TAUGHT_ENVS)
def test_a_tiny_policy_may_be_evaluated_as_it_was_taught(load, kind):
    taught = [f"env.{key}={value}" for key, value in TAUGHT_ENVS[kind].items()]
    held_rate = (HELD,) if kind == "frozen_lake" else ()
    base = ("base: sokoban", f"base: {kind}")
    assert check_sweep(load(base, *held_rate, overrides=taught)).warnings == ()
    (finding,) = check_sweep(
        load(base, *held_rate, overrides=[*taught, "env.split_seed=1"])
    ).warnings
    assert finding.code == "S8.seen_tasks"
    assert "with env.split_seed as in 3 conditions" in finding.message


def test_the_warm_start_has_no_copy_of_what_the_tiny_policies_were_taught():
    """Read, not imported: it imports torch."""
    text = (Path(__file__).parents[2] / "rltune" / "trainer" / "warmstart.py").read_text("utf-8")
    assert "\nfrom rltune.spec.warmstart_data import TAUGHT_ENVS, UNSEEN_TASKS\n" in text
    assert "TAUGHT_ENVS[env_kind]" in text
    assert "heldout_tasks=UNSEEN_TASKS" in text
