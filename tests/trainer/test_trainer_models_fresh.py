"""Fresh tasks: which tasks no generation has seen."""

import pytest

from rltune.errors import InputError, TrialError
from rltune.policy.load import weights_digest
from rltune.rollout.torch_engine import TorchEngine
from rltune.trainer.final_test import TestJob
from rltune.trainer.models.fresh import (
    fresh_tasks,
    known_contents,
    play_generation,
)
from rltune_envs.arithmetic.env import ArithmeticEnv
from rltune_envs.errors import TaskError
from rltune_envs.splits import build_manifest


def contents(tasks):
    return {task.content_hash for task in tasks}


def test_no_task_of_any_split_is_fresh():
    """Of the very stream that the splits were drawn from: what they took is left out."""
    manifest = build_manifest(
        ArithmeticEnv(), train_tasks=6, heldout_tasks=4, test_tasks=3, split_seed=5
    )
    known = known_contents([manifest])
    assert len(known) == 13
    tasks = fresh_tasks(ArithmeticEnv, 8, split_seed=5, known=known)
    assert len(contents(tasks)) == 8
    assert not contents(tasks) & known
    same = fresh_tasks(ArithmeticEnv, 8, split_seed=5, known=known)
    assert tasks == same
    assert fresh_tasks(ArithmeticEnv, 3, split_seed=5, known=known) == tasks[:3]
    assert not contents(fresh_tasks(ArithmeticEnv, 8, split_seed=6, known=known)) & known


class Rows(ArithmeticEnv):
    """Has parts of its own: one row held out, three for the test, four to train on."""

    def part_seeds(self, part):
        return {"heldout": range(1), "test": range(1, 4), "train": range(4, 8)}[part]


def test_rows_that_no_split_took_are_fresh_and_more_are_refused():
    known = contents(Rows().task(seed) for seed in (0, 1, 4))
    tasks = fresh_tasks(Rows, 5, split_seed=0, known=known)
    assert {task.seed for task in tasks} == {2, 3, 5, 6, 7}
    assert {task.seed for task in tasks[:2]} == {2, 3}  # those for a test come first
    message = "--fresh: the environment has 5 tasks that no generation has seen, not 6. Ask for"
    with pytest.raises(InputError, match=message):
        fresh_tasks(Rows, 6, split_seed=0, known=known)


class Wrong(ArithmeticEnv):
    """Its gold answers are wrong."""

    def format_response(self, actions):
        return "nothing"


def test_fresh_tasks_prove_themselves_as_held_out_ones_do():
    with pytest.raises(TaskError, match="its own gold solution does not earn full marks"):
        fresh_tasks(Wrong, 1, split_seed=0, known=())


@pytest.fixture
def job(make_trial, make_manifest, small_policy, up_env):
    """A trial of one step that has ended."""
    trial = make_trial(budget__steps=1, gate__every=1, checkpoint__every=1)
    trial.run()
    return TestJob(
        trial=trial.folder,
        config=trial.config,
        config_hash="c" * 64,
        manifest=make_manifest(),
        make_env=up_env,
        policy=small_policy(),
        make_engine=lambda policy: TorchEngine(policy.decoder()),
    )


def test_a_generation_plays_with_its_checkpoint_or_as_it_began(job, small_policy, up_env):
    tasks = tuple(up_env().task(seed) for seed in (1, 2, 3))
    how = {"config": job.config, "make_env": up_env}
    start = play_generation(job, None, tasks, name="start", **how)
    assert start["checkpoint_sha256"] == weights_digest(small_policy().model)
    assert (start["name"], start["step"], start["n"], start["fault"]) == ("start", 0, 3, [""] * 3)
    trained = play_generation(job, 1, tasks, name="a-1/x", **how)
    assert trained["checkpoint_sha256"] != start["checkpoint_sha256"]
    assert (trained["name"], trained["step"]) == ("a-1/x", 1)
    assert trained["tasks_sha256"] == start["tasks_sha256"]


def test_a_generation_that_scored_nothing_is_no_record(job, up_env):
    def broken():
        return up_env(is_faulty=lambda seed: True)

    with pytest.raises(TrialError, match="fresh tasks"):
        play_generation(
            job, None, (up_env().task(1),), name="x", config=job.config, make_env=broken
        )
