"""From a config to its env, reward and frozen tasks; and what is refused before anything starts."""

import inspect
import json
import re
import sys
from pathlib import Path

import pytest

from rltune.errors import SpecError
from rltune.spec.keys import kept_keys
from rltune.spec.load import load_sweep
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.preflight.references import require_usable
from rltune.trainer.tasks import ENVS, env_maker, files_of, freeze_tasks, workers_of
from rltune_envs.imports import load_object
from rltune_envs.verified import VerifiedEnv

ENV = '''
import dataclasses, hashlib, json
from rltune_envs.base import Step, Task, TextEnv


class Echo(TextEnv):
    """Say the number; one turn."""

    system_prompt = ""
    response_prefix = ""
    auxiliary_names = ("length",)

    def __init__(self, *, offset=0):
        if offset < 0:
            raise ValueError("offset is negative")
        self.offset = offset

    def reset(self, *, seed):
        self.wanted = str(seed % 100 + self.offset)
        return self.wanted

    def step(self, response):
        right = response == self.wanted
        return Step("", reward=float(right), terminated=True, truncated=False, success=right,
                    auxiliary={"length": float(len(response))})

    def task(self, seed):
        digest = hashlib.sha256(str(seed % 100).encode()).hexdigest()
        return Task(f"echo-{seed}", seed, digest, digest, 1)

    def format_response(self, actions):
        return actions[0]

    def expert_actions(self):
        return (self.wanted,)

    def random_actions(self, rng):
        return (str(rng.randrange(100)),)

    def random_success_probability(self, seed):
        return 0.01

    def optimal_success_probability(self, seed):
        return 1.0


class Loud(Echo):
    auxiliary_names = ("turns",)


class Spender(Echo):
    def __init__(self, **arguments):
        super().__init__()
        self.response_prefix = json.dumps(arguments)
        arguments["weights"]["a"].append(arguments["weights"].pop("qwen2.5"))


class Files:
    def __init__(self, **arguments):
        self.arguments = arguments


def make_echo():
    return Echo()


def make_nothing():
    return {}["gone"]


def not_an_env():
    return 3


def long(attempt):
    return float(len(attempt.responses[0]) > 1)
'''
_BUG = '    return {}["gone"]'
BROKEN = "import nothing_of_this_name\n"
SWEEP = """
name: own
title: Own
question: Does it start?
base: sokoban
hold:
  env: {env}
  reward: {reward}
  advantage: {{kind: grpo, ddof: 0}}
  attribution: {attribution}
  policy.model: mine
  loss.kl_type: k2
  loss.entropy_coeff: 0.0
  rollout_filter: {{strategy: top_p, value: 1.0, include_zero: true}}
axis:
  key: loss.kl_loss_coef
  values: [0.0, 0.1]
  control: 0.0
  coupled:
    - {{key: loss.use_kl_loss, rule: "value > 0", why: one switch}}
seeds: [0, 1, 2]
metric: {{name: {metric}}}
profiles: {{default: laptop, allowed: [laptop]}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a working folder with modules of one's own, importable during the test only."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("own_env", "own_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "own_env.py").write_text(ENV, encoding="utf-8")
    (tmp_path / "own_broken.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("own_env", "own_broken"):
        sys.modules.pop(name, None)


def config_of(**sections):
    return TrialConfig.model_validate({"policy": {"model": "mine"}, **sections})


@pytest.fixture
def usable(folder):
    """Return a function that checks a sweep over an env and a reward: None, or its problems."""

    def check(
        *,
        env="own_env:Echo",
        reward="null",
        metric="heldout/success_rate",
        attribution="{kind: none}",
    ):
        path = Path("own.yaml")
        keys = {"env": env, "reward": reward, "metric": metric, "attribution": attribution}
        path.write_text(SWEEP.format(**keys), encoding="utf-8")
        try:
            require_usable(load_sweep(path), folder)
        except SpecError as error:
            return str(error).splitlines()
        return None

    return check


ESTIMATORS = """
def scaled(outcome_N, group_N, *, scale):
    return outcome_N * scale


def plain(outcome_N):
    return outcome_N
"""


@pytest.mark.parametrize(
    ("estimator", "arguments", "said"),
    [
        ("scaled", "{scale: 2.0}", None),
        (
            "scaled",
            "{scal: 2.0}",
            "cannot be called with (outcome_N, group_N, scal=2.0): missing a required argument: "
            "'scale'. It is defined with (outcome_N, group_N, *, scale).",
        ),
        (
            "scaled",
            "{scale: 2.0, group_N: 1}",
            "cannot be called with (outcome_N, group_N, scale=2.0, group_N=1): multiple values for "
            "argument 'group_N'. It is defined with (outcome_N, group_N, *, scale).",
        ),
        (
            "plain",
            "{}",
            "cannot be called with (outcome_N, group_N): too many positional arguments. It is "
            "defined with (outcome_N).",
        ),
    ],
)
def test_the_arguments_of_an_estimator_of_ones_own(folder, estimator, arguments, said):
    (folder / "own_env.py").write_text(ESTIMATORS, encoding="utf-8")
    path = f"own_env:{estimator}"
    keys = {"env": "sokoban", "reward": "null", "metric": "heldout/success_rate"}
    text = SWEEP.format(**keys, attribution="{kind: none}")
    section = f"{{kind: custom, estimator: {path!r}, arguments: {arguments}}}"
    Path("own.yaml").write_text(text.replace("{kind: grpo, ddof: 0}", section), encoding="utf-8")
    if said is None:
        require_usable(load_sweep(Path("own.yaml")), folder)
        return
    with pytest.raises(SpecError) as caught:
        require_usable(load_sweep(Path("own.yaml")), folder)
    want = f"own.yaml: advantage.estimator: {path!r} {said} Change advantage.arguments, or the "
    assert without_place(str(caught.value)) == f"{want}function."


def without_place(line):
    """Return a message without the line and the part of the file that it names."""
    return re.sub(r"^own\.yaml:\d+: (hold\.)?", "own.yaml: ", line)


NEEDED = {"verified": {"train": "p.jsonl", "verifier": "exact"}}


@pytest.mark.parametrize("kind", ENVS)
def test_the_keys_of_a_section_are_the_keywords_of_its_class(kind):
    section = config_of(env={"kind": kind, **NEEDED.get(kind, {})}).env
    shared = {"kind", *kept_keys("env", kind)} - {"prompt"}
    keywords = inspect.signature(load_object(ENVS[kind])).parameters
    keys = set(type(section).model_fields) - shared
    assert set(keywords) == keys
    for key in keys - set(NEEDED.get(kind, {})):
        default = keywords[key].default
        assert default == getattr(section, key), key
    assert env_maker(section)() is not env_maker(section)()


def test_an_env_of_ones_own_gets_its_arguments(folder):
    env = {"kind": "custom", "factory": "own_env:Echo", "arguments": {"offset": 5}}
    make = env_maker(config_of(env=env).env, None, folder)
    assert make().reset(seed=7) == "12"
    assert make() is not make()


def test_a_class_cannot_change_what_the_next_one_gets(folder):
    own = {"weights": {"qwen2.5": 1.0, "a": [1]}, "a.b": None}
    env = {"kind": "custom", "factory": "own_env:Spender", "arguments": own}
    make = env_maker(config_of(env=env).env, None, folder)
    assert [make().response_prefix for _ in range(2)] == [json.dumps(own)] * 2


def test_a_reward_of_ones_own_replaces_the_envs(folder):
    rewards = {
        "terms": [{"score": "own_env:long", "weight": 2.0}, {"score": "length", "weight": 0.5}],
        "threshold": 0.5,
        "turn_rewards": "env",
        "format_penalty": -1.0,
    }
    config = config_of(env="own_env:Echo", reward=rewards)
    env = env_maker(config.env, config.reward, folder)()
    assert isinstance(env, VerifiedEnv)
    assert (env.rubric.threshold, env.keeps_turn_rewards, env.format_penalty) == (0.5, True, -1.0)
    env.reset(seed=7)
    step = env.step("abc")  # wrong for the env, long enough for the reward
    assert (step.success, step.reward) == (True, 2.0 * 1 + 0.5 * 3)
    assert dict(step.auxiliary) == {"length": 3.0, "long": 1.0}
    plain = env_maker(config.env, None, folder)()
    plain.reset(seed=7)
    assert not plain.step("abc").success


def test_the_splits_are_frozen_with_a_test_split(folder):
    config = config_of(
        env={"kind": "custom", "factory": "own_env:Echo", "train_tasks": 20},
        gate={"tasks": 8, "test_tasks": 5},
    )
    manifest = freeze_tasks(config, folder)
    assert [len(part) for part in (manifest.train, manifest.heldout, manifest.test)] == [20, 8, 5]
    assert manifest.heldout_floor.rate == pytest.approx(0.01)


def test_a_class_gets_absolute_files_and_no_key_of_the_splits(folder, monkeypatch):
    monkeypatch.setitem(ENVS, "sokoban", "own_env:Files")
    monkeypatch.syspath_prepend(folder)
    env = config_of(env={"kind": "sokoban", "levels": "levels/a.txt"}).env
    got = env_maker(env, None, folder)().arguments
    assert got["levels"] == str(folder / "levels/a.txt")
    assert set(got) == set(type(env).model_fields) - {"kind", "train_tasks", "split_seed"}


def test_relative_files_are_the_drivers(tmp_path):
    qa = {"kind": "multihop_qa", "questions": "data/q.json", "corpus": "c.jsonl"}
    env = config_of(env=qa).env
    assert files_of(env, tmp_path) == {
        "questions": tmp_path / "data/q.json", "corpus": tmp_path / "c.jsonl",
    }  # fmt: skip
    shared = config_of(env={**qa, "corpus": "all", "questions": "/q.json"}).env
    assert files_of(shared, tmp_path) == {"questions": Path("/q.json")}
    assert files_of(config_of().env, tmp_path) == {}


def test_files_of_named_sets_are_the_drivers_too(tmp_path):
    sets = {"nq": "nq.jsonl", "hotpotqa": {"file": "/h.json", "file_format": "hotpotqa_fullwiki"}}
    qa = {"kind": "multihop_qa", "questions": "q.jsonl", "retriever": "http://127.0.0.1:1/retrieve"}
    env = config_of(env={**qa, "eval": sets}).env
    assert files_of(env, tmp_path) == {
        "questions": tmp_path / "q.jsonl",
        "eval.nq": tmp_path / "nq.jsonl",
        "eval.hotpotqa": Path("/h.json"),
    }
    for name in ("nq", "q"):
        row = {"question": f"Who is {name}?", "golden_answers": ["Otto"]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    only = config_of(env={**qa, "eval": {"nq": "nq.jsonl"}}).env
    made = env_maker(only, None, tmp_path)()
    assert made.eval_sets() == {"nq": 2**32}
    assert "Who is nq?" in made.reset(seed=2**32)


def test_the_metric_may_be_that_of_a_named_set(usable, folder):
    row = {"question": "Who?", "golden_answers": ["Otto"]}
    for name in ("q", "nq"):
        (folder / f"{name}.jsonl").write_text(json.dumps(row))
    env = (
        "{kind: multihop_qa, prompt: natural, questions: q.jsonl, eval: {nq: nq.jsonl}, "
        "retriever: 'http://127.0.0.1:1/retrieve'}"
    )
    assert usable(env=env, metric="heldout/nq/f1") is None
    assert usable(env=env, metric="heldout/macro/em") is None
    (line,) = usable(env=env, metric="heldout/nq/f2")
    assert "'heldout/nq/f2' is not measured in this env" in line
    assert "heldout/nq/success_rate, heldout/nq/em, heldout/nq/f1, heldout/macro/succ" in line
    (line,) = usable(env=env.replace("nq.jsonl", "no.jsonl"), metric="heldout/nq/f1")
    assert "env.eval.nq: 'no.jsonl' is not a file." in line


# --- before anything starts ---------------------------------------------------------------------


def test_a_sound_sweep_passes(usable):
    assert usable() is None
    assert usable(reward="own_env:long", metric="heldout/long") is None
    assert usable(reward="{terms: [{score: success}, {score: length}]}") is None
    assert usable(metric="heldout/length") is None


REFUSED = {
    "module": (
        {"env": "own_nev:Echo"},
        "env.factory: 'own_nev:Echo': there is no module 'own_nev'; "
        "install its package, or add its folder to PYTHONPATH.",
    ),
    "name": (
        {"env": "own_env:Ecko"},
        "env.factory: 'own_env:Ecko': the module 'own_env' has no 'Ecko'; did you mean 'Echo'?",
    ),
    "error inside": (
        {"env": "own_broken:Echo"},
        "env.factory: 'own_broken:Echo': importing 'own_broken' raised ModuleNotFoundError: "
        "No module named 'nothing_of_this_name'.",
    ),
    "no env": (
        {"env": "own_env:not_an_env"},
        "env.factory: no environment can be made: it makes a int, not a rltune_envs.base.TextEnv; "
        "derive the class from TextEnv.",
    ),
    "value": (
        {"env": "{kind: custom, factory: 'own_env:Echo', arguments: {offset: -1}}"},
        "env.factory: no environment can be made: offset is negative.",
    ),
    "bug": (
        {"env": "own_env:make_nothing"},
        "env.factory: no environment can be made: it raised KeyError: 'gone' "
        f"({{base}}/own_env.py:{ENV.splitlines().index(_BUG) + 1}, in make_nothing).",
    ),
    "argument": (
        {"env": "{kind: custom, factory: 'own_env:Echo', arguments: {size: 1}}"},
        "env.factory: no environment can be made: it raised TypeError: Echo.__init__() got an "
        "unexpected keyword argument 'size'.",
    ),
    "measure": (
        {"env": "own_env:Loud"},
        "env: the measure 'turns' has the name of one that every env has. "
        "Rename it in auxiliary_names.",
    ),
    "score": (
        {"reward": "{terms: [{score: lenght}]}"},
        "reward.terms: 'lenght' is not a score. Choose one of success, env_reward, valid_turns, "
        "length, or an import path such as my_pkg.my_mod:score. Did you mean 'length'?",
    ),
    "score path": (
        {"reward": "own_env:longer"},
        "reward.terms: 'own_env:longer': the module 'own_env' has no 'longer'; "
        "did you mean 'long'?",
    ),
    "metric": (
        {"metric": "heldout/em"},
        "metric.name: 'heldout/em' is not measured in this env. Choose one of "
        "heldout/success_rate, heldout/reward_mean, heldout/turns, heldout/invalid_action_rate, "
        "heldout/fault_count, heldout/length.",
    ),
    "file": (
        {"env": "{kind: sokoban, levels: none.txt, prompt: natural}"},
        "env.levels: 'none.txt' is not a file. Give a path that is relative to {base}, "
        "or absolute.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_one_clear_line(usable, folder, changes, said):
    lines = [without_place(line) for line in usable(**changes)]
    assert lines == [f"own.yaml: {said.replace('{base}', str(folder))}"]


def test_the_line_is_named(usable):
    lines = Path("own.yaml").read_text(encoding="utf-8").splitlines() if usable() is None else []
    number = next(i for i, line in enumerate(lines, 1) if line.lstrip().startswith("env:"))
    (said,) = usable(env="own_env:Ecko")
    assert said.startswith(f"own.yaml:{number}: hold.env.factory: ")


def test_env_and_reward_are_reported_together(usable):
    lines = usable(env="own_env:Ecko", reward="own_env:longer")
    keys = [without_place(line).split(": ")[1] for line in lines]
    assert keys == ["reward.terms", "env.factory"]


@pytest.mark.parametrize("env", ["own_env:Echo", "own_env:make_echo"], ids=["class", "function"])
@pytest.mark.parametrize(
    ("attribution", "missing"),
    [
        ("{kind: adca, judge: solver}", ["distance_to_go"]),
        ("{kind: adca, judge: gold}", ["distance_to_go", "gold_response"]),
        ("{kind: info_gain}", ["gold_response"]),
        ("{kind: adca, judge: llm}", []),
        ("{kind: adca, judge: solver, alpha: 0.0}", []),
        ("{kind: adca, judge: solver, alpha: 0.0, alpha_min: 0.1}", []),
        ("{kind: info_gain, mode: none}", []),
    ],
)
def test_an_env_must_know_what_the_attribution_asks_it(usable, env, attribution, missing):
    otherwise = ", or choose attribution.judge: llm" if "adca" in attribution else ""
    want = [
        f"own.yaml: attribution: Echo has no {name}(), which it needs. Define {name}(){otherwise}."
        for name in missing
    ]
    found = usable(env=env, attribution=attribution)
    assert [without_place(line) for line in found or ()] == want


@pytest.mark.parametrize(
    ("env", "reward", "workers"),
    [
        ("sokoban", None, 1),
        ("frozen_lake", "success", 1),
        ("frozen_lake", "my_pkg.my_mod:score", 5),
        ("multihop_qa", None, 1),
        ({"kind": "multihop_qa", "retriever": "http://127.0.0.1:8000"}, None, 5),
        ("my_pkg.my_mod:MyEnv", None, 5),
    ],
)
def test_only_what_may_wait_plays_in_several_threads(env, reward, workers):
    sections = {"env": env, "reward": reward, "rollout": {"workers": 5}, "policy": {"model": "x"}}
    assert workers_of(TrialConfig(**sections)) == workers
