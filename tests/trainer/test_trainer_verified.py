"""A config with `env: verified`: its environment, its frozen tasks, its files, its few rows."""

import json

import pytest
from test_trainer_tasks import SWEEP, config_of

from rltune.errors import InputError, SpecError
from rltune.runner.proof import prove_by_keys
from rltune.spec.load import load_sweep
from rltune.trainer.inputs import task_inputs
from rltune.trainer.preflight.few_rows import few_rows
from rltune.trainer.preflight.references import require_usable
from rltune.trainer.tasks import env_maker, files_of, freeze_tasks, require_same_rows

ENV = {"kind": "verified", "train": "p.jsonl", "verifier": "number"}
POLICY = {"model": "some/model"}


def write_rows(path, n):
    rows = ({"question": f"What is {i} + {i}?", "answer": 2 * i} for i in range(n))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_tasks_of_a_file_are_frozen(tmp_path):
    write_rows(tmp_path / "p.jsonl", 200)
    config = config_of(env=ENV, policy=POLICY, gate={"tasks": 16})
    manifest = freeze_tasks(config, tmp_path)
    assert len(manifest.heldout) == 16
    assert 100 < len(manifest.train) < 180
    assert manifest.proved == "expert"


def test_its_files_are_inputs(tmp_path):
    write_rows(tmp_path / "p.jsonl", 3)
    config = config_of(env={**ENV, "heldout": "p.jsonl"}, policy=POLICY)
    assert files_of(config.env, tmp_path) == {
        "train": tmp_path / "p.jsonl", "heldout": tmp_path / "p.jsonl",
    }  # fmt: skip
    assert [path for path in task_inputs(config, tmp_path) if path.endswith("p.jsonl")]


def loaded(tmp_path, monkeypatch, more="", verifier="number"):
    monkeypatch.chdir(tmp_path)
    env = f"{{kind: verified, train: p.jsonl, verifier: '{verifier}'{more}}}"
    keys = {"env": env, "reward": "null", "metric": "heldout/success_rate"}
    (tmp_path / "own.yaml").write_text(SWEEP.format(**keys, attribution="{kind: none}"))
    return load_sweep("own.yaml")


def codes(sweep, tmp_path):
    return [finding.code for finding in prove_by_keys(sweep, tmp_path).warnings]


def test_few_rows_are_named(tmp_path, monkeypatch):
    write_rows(tmp_path / "p.jsonl", 60)
    sweep = loaded(tmp_path, monkeypatch)
    require_usable(sweep, tmp_path)
    found = prove_by_keys(sweep, tmp_path).warnings
    (few,) = (finding for finding in found if finding.code == "S8.few_rows")
    assert "rows of p.jsonl: what they learn may be these rows alone." in few.message
    assert few.message.startswith("2 conditions (")
    write_rows(tmp_path / "p.jsonl", 300)
    assert "S8.few_rows" not in codes(sweep, tmp_path)
    assert "S8.few_rows" in codes(loaded(tmp_path, monkeypatch, ", train_tasks: 99"), tmp_path)


OWN_ENV = """
from rltune_envs.base import Step, TextEnv, task_of

class Endless(TextEnv):
    def reset(self, *, seed):
        return str(seed)

    def step(self, response):
        return Step("", terminated=True)

    def task(self, seed):
        return task_of("rows", str(seed), seed)

class Rows(Endless):
    def part_seeds(self, part):
        return range(40)
"""


@pytest.mark.parametrize(("name", "found"), [("Rows", ["S8.few_rows"]), ("Endless", [])])
def test_few_rows_of_a_custom_env_are_named(tmp_path, monkeypatch, name, found):
    (tmp_path / "few_rows_env.py").write_text(OWN_ENV)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    env = f"{{kind: custom, factory: 'few_rows_env:{name}', train_tasks: 50}}"
    keys = {"reward": "null", "metric": "heldout/success_rate", "attribution": "{kind: none}"}
    (tmp_path / "own.yaml").write_text(SWEEP.format(env=env, **keys))
    findings = list(few_rows(load_sweep("own.yaml"), tmp_path))
    assert [finding.code for finding in findings] == found
    assert all("40 rows of few_rows_env:Rows" in finding.message for finding in findings)


def test_a_check_reads_the_rows(tmp_path, monkeypatch):
    (tmp_path / "p.jsonl").write_text('{"question": "1 + 1?"}\n')
    with pytest.raises(SpecError) as caught:
        require_usable(loaded(tmp_path, monkeypatch), tmp_path)
    assert "p.jsonl:1: the column 'answer' (env.answer_column) is missing" in str(caught.value)


def test_a_verifier_that_cannot_be_imported_is_named_by_its_key(tmp_path, monkeypatch):
    write_rows(tmp_path / "p.jsonl", 3)
    sweep = loaded(tmp_path, monkeypatch, verifier="no_such_grader:score")
    with pytest.raises(SpecError) as caught:
        require_usable(sweep, tmp_path)
    assert "env.verifier.kind: 'no_such_grader:score': there is no module" in str(caught.value)


def test_a_file_that_is_not_there_is_named_by_its_key(tmp_path, monkeypatch):
    with pytest.raises(SpecError) as caught:
        require_usable(loaded(tmp_path, monkeypatch), tmp_path)
    assert "env.train: 'p.jsonl' is not a file." in str(caught.value)


def test_a_file_that_changed_is_refused_before_it_is_played(tmp_path):
    write_rows(tmp_path / "p.jsonl", 200)
    config = config_of(env=ENV, policy=POLICY, gate={"tasks": 16})
    manifest, make_env = freeze_tasks(config, tmp_path), env_maker(config.env, None, tmp_path)
    require_same_rows(make_env, manifest)
    write_rows(tmp_path / "p.jsonl", 201)
    with pytest.raises(InputError, match=r"env: train: p\.jsonl: it changed after the tasks were"):
        require_same_rows(make_env, manifest)


def test_a_trial_goes_on_with_the_rows_it_began_with(tmp_path):
    write_rows(tmp_path / "p.jsonl", 200)
    make_env = env_maker(config_of(env=ENV).env, None, tmp_path)
    env = make_env()
    before = [env.reset(seed=seed) for seed in range(200)]
    write_rows(tmp_path / "p.jsonl", 150)
    assert [make_env().reset(seed=seed) for seed in range(200)] == before
    one, other = make_env(), make_env()
    assert one.reset(seed=0) != other.reset(seed=1)  # each has its own episode
    assert one.gold(0)["answers"] != other.gold(1)["answers"]
    assert one.problem != other.problem
    assert env_maker(config_of(env=ENV).env, None, tmp_path)().reset(seed=150) in before


GENERATED = "{kind: verified, source: 'reasoning_gym:NAME', train_tasks: 99}"


def test_few_generated_problems_are_named_without_making_any(tmp_path, monkeypatch):
    (few,) = (
        finding
        for finding in few_rows(generated(tmp_path, monkeypatch, "gcd"), tmp_path)
        if finding.code == "S8.few_rows"
    )
    assert "would train on 99 rows of reasoning_gym:gcd" in few.message


@pytest.mark.slow  # starts a process that imports reasoning-gym
def test_a_check_asks_the_generator(tmp_path, monkeypatch):
    require_usable(generated(tmp_path, monkeypatch, "gcd"), tmp_path)
    with pytest.raises(SpecError) as caught:
        require_usable(generated(tmp_path, monkeypatch, "gdc"), tmp_path)
    assert "no environment can be made: source is 'reasoning_gym:gdc'" in str(caught.value)
    assert str(caught.value).endswith("Did you mean 'gcd'?")


def generated(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    keys = {"reward": "null", "metric": "heldout/success_rate", "attribution": "{kind: none}"}
    text = SWEEP.format(env=GENERATED.replace("NAME", name), **keys)
    (tmp_path / f"{name}.yaml").write_text(text)
    return load_sweep(f"{name}.yaml")
