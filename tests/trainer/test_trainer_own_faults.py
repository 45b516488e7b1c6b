"""Code of a user's that fails in a trial: the episode is a counted fault, the others go on."""

import itertools
import math
import sys

import pytest

from rltune.store.digest import metrics_digest
from rltune.store.jsonl import read_jsonl
from rltune_envs.errors import CustomCodeError
from rltune_envs.guarded import guarded_env, guarded_score
from rltune_envs.rewards import Rubric, Term
from rltune_envs.verified import VerifiedEnv

HERE = __name__


@pytest.fixture
def run(make_trial, up_env):
    """Return a function that runs a trial of two steps over an env whose methods fail as told."""

    def run(methods, *, reward=None, **changes):
        failing = type("Own", (up_env,), {"__module__": HERE, **methods})
        trial = make_trial(**{"budget__steps": 2, "gate__every": 2, **changes})
        made = lambda: guarded_env(failing, f"{HERE}:Own", {})  # noqa: E731
        if reward is not None:
            rubric = Rubric((Term("mine", 1.0, guarded_score(reward, f"{HERE}:mine")),))
            trial.make_env = lambda: VerifiedEnv(made(), rubric)
        else:
            trial.make_env = made
        return trial, trial.run()

    return run


def at(call, error):
    """Return a method that raises at its n-th call, and else does what the env does."""
    counter = itertools.count(1)

    def wrap(name):
        def method(self, *args, **options):
            if next(counter) == call:
                raise error
            return getattr(super(type(self), self), name)(*args, **options)

        return method

    return wrap


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("step", ConnectionError("reset by peer")),
        ("step", SystemExit(1)),
        ("step", KeyboardInterrupt()),
        ("reset", MemoryError()),
    ],
)
def test_one_exception_of_one_episode_is_a_counted_masked_fault(run, name, error):
    # the probe, 5 held-out tasks, and then: the third call of step 1
    nth = 1 + 5 + 3 if name == "reset" else 200
    trial, result = run({name: at(nth if name == "reset" else 30, error)(name)})
    assert result.final_step == 2
    faults = [row["fault"] for row in read_jsonl(trial.folder.episodes).rows if row["fault"]]
    (said,) = faults
    assert said.startswith(f"env Own.{name}(): it raised {type(error).__name__}")
    assert f"({__file__}:" in said
    assert sum(row["rollout/fault_count"] for row in trial.rows[1:]) == 1
    assert sum(warning.count("1 of 8 episodes had a fault") for warning in trial.warnings) == 1
    assert result.budget["rollouts"] == 2 * 8


def test_a_constructor_that_fails_once_is_a_fault_of_its_episode(run):
    counter = itertools.count(1)

    def __init__(self):
        type(self).__mro__[1].__init__(self)
        if next(counter) == 12:
            raise ConnectionError("refused")

    trial, _ = run({"__init__": __init__})
    rows = [row for row in read_jsonl(trial.folder.episodes).rows if row["fault"]]
    assert [row["turns"] for row in rows] == [[]]
    assert rows[0]["failure_class"] == "fault"
    assert not rows[0]["kept"]


def test_a_score_that_leaves_is_a_fault(run):
    counter = itertools.count(1)

    def mine(attempt):
        return sys.exit() if next(counter) % 10 == 0 else float(len(attempt.turns) > 1)

    trial, result = run({}, reward=mine)
    assert result.final_step == 2
    faults = {row["fault"] for row in read_jsonl(trial.folder.episodes).rows} - {""}
    (said,) = faults
    assert said.startswith("verifier mine: it raised SystemExit")
    assert said.endswith(", in mine)")


def test_an_env_that_never_resets_is_refused_by_its_line(run):
    def reset(self, *, seed):
        return {}["gone"]

    with pytest.raises(CustomCodeError, match=r"^env Own.reset\(\): it raised KeyError: 'gone' \("):
        run({"reset": reset})


def test_gold_and_distance_that_fail_are_faults(run):
    counter = itertools.count()

    def distance_to_go(self):
        if next(counter) % 30 == 29:
            raise ConnectionError("solver")
        return 1

    changes = {"attribution": {"kind": "adca", "judge": "solver", "alpha": 0.1}}
    trial, _ = run({"distance_to_go": distance_to_go}, **changes)
    faults = {row["fault"] for row in read_jsonl(trial.folder.episodes).rows} - {""}
    assert all(said.startswith("env Own.distance_to_go(): it raised Conn") for said in faults)
    assert faults
    assert all(math.isfinite(row["actor/grad_norm"]) for row in trial.rows[1:])


def test_global_random_state_is_the_users_alone(run):
    """Draws of rltune come from named streams; what an env does to global generators is its own."""
    import random

    import numpy as np
    import torch

    def step(self, response):
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(next(counter))
        return super(type(self), self).step(response)

    counter = itertools.count(7)
    lora = {"policy__lora": {"rank": 2, "alpha": 4, "dropout": 0.1}}
    plain, _ = run({}, name="plain", **lora)
    seeding, _ = run({"step": step}, name="seeding", **lora)
    assert metrics_digest(seeding.folder.metrics) == metrics_digest(plain.folder.metrics)


@pytest.mark.slow
def test_no_metric_depends_on_how_many_environments_play_at_a_time(run):
    def step(self, response):
        if self._seed == 3 and self._turn:
            raise ConnectionError("gone")
        return super(type(self), self).step(response)

    # What only computes plays alone.
    changes = {"reward__terms": [{"score": "my_pkg.my_mod:score"}], "budget__steps": 4}
    digests, faults = set(), set()
    for workers in (1, 8):
        trial, _ = run({"step": step}, name=f"by {workers}", rollout__workers=workers, **changes)
        digests.add(metrics_digest(trial.folder.metrics))
        faults.add(tuple(row["fault"] for row in read_jsonl(trial.folder.episodes).rows))
    assert len(digests) == len(faults) == 1
    assert any(faults.pop())
