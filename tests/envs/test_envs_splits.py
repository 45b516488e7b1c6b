"""Splits: disjoint by content, frozen with a digest; cases.md A3."""

import json
import re
from dataclasses import replace

import pytest

from rltune_envs import splits
from rltune_envs.errors import GenerationError
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.splits import Manifest, build_manifest, is_solved_by_expert, overlapping_tasks


@pytest.fixture(scope="module")
def manifest():
    return build_manifest(
        SokobanEnv(search_depth=30), train_tasks=600, heldout_tasks=100, split_seed=0
    )


def test_no_content_is_in_both_splits_or_twice_in_one(manifest):
    hashes = [task.content_hash for task in (*manifest.train, *manifest.heldout)]

    assert (len(manifest.train), len(manifest.heldout)) == (600, 100)
    assert len(set(hashes)) == 700
    assert overlapping_tasks(manifest) == ()


def test_the_stream_of_seeds_does_hold_duplicates(manifest):
    # So the test above had something to find: 6x6 rooms repeat.
    drawn = manifest.train[-1].seed + 1
    env = SokobanEnv(search_depth=30)
    distinct = {env.task(seed).content_hash for seed in range(drawn)}

    assert manifest.n_duplicates == drawn - 700 > 0
    assert len(distinct) == 700


def test_a_leaked_task_is_named(manifest):
    leaked = manifest.train[17]
    bad = replace(manifest, heldout=(*manifest.heldout, replace(leaked, seed=10**9)))

    assert overlapping_tasks(bad) == (leaked,)
    message = rf"^1 training tasks are also held out, {leaked.task_id} first$"
    with pytest.raises(ValueError, match=message):
        Manifest.from_json(bad.to_json())  # although its digest is right


def test_task_names_are_unique_and_say_the_content(manifest):
    tasks = (*manifest.train, *manifest.heldout)

    assert len({task.task_id for task in tasks}) == 700
    assert all(task.task_id == f"sokoban-{task.content_hash[:12]}" for task in tasks)


def test_each_task_makes_the_level_it_describes(manifest):
    env = SokobanEnv(search_depth=30)
    for task in manifest.heldout:
        assert env.task(task.seed) == task


def test_floor_and_ceiling(manifest):
    env = SokobanEnv(search_depth=30)
    floors = [env.random_success_probability(task.seed) for task in manifest.heldout]

    assert manifest.heldout_floor == sum(floors) / 100
    assert 0.1 < manifest.heldout_floor < 0.5
    assert manifest.heldout_ceiling == 1.0


def test_a_task_that_no_episode_is_long_enough_for_lowers_the_ceiling():
    class Hurried(SokobanEnv):
        """Makes levels of up to 10 moves and plays only 4."""

        def __init__(self):
            super().__init__(search_depth=30)
            self.max_turns = 2

        @property
        def _action_limit(self):
            return 10

    env = Hurried()
    made = build_manifest(env, train_tasks=0, heldout_tasks=50, split_seed=0)
    n_short = sum(task.optimal_actions <= 4 for task in made.heldout)

    assert 0 < n_short < 50
    assert made.heldout_ceiling == n_short / 50
    assert not is_solved_by_expert(env, next(t for t in made.heldout if t.optimal_actions > 4))


def test_a_split_seed_names_one_pair_of_splits():
    def build(split_seed):
        env = SokobanEnv(search_depth=30)
        return build_manifest(env, train_tasks=30, heldout_tasks=10, split_seed=split_seed)

    assert build(0) == build(0)
    assert build(0).sha256 != build(1).sha256
    assert {task.seed for task in build(0).train}.isdisjoint(task.seed for task in build(1).train)


def test_more_training_tasks_leave_the_held_out_ones_alone():
    env = SokobanEnv(search_depth=30)
    few, many = (
        build_manifest(env, train_tasks=n, heldout_tasks=20, split_seed=0) for n in (10, 50)
    )

    assert few.heldout == many.heldout
    assert few.train == many.train[:10]


def test_a_manifest_reads_back_as_itself(manifest):
    again = Manifest.from_json(json.loads(json.dumps(manifest.to_json())))

    assert again == manifest
    assert again.sha256 == manifest.sha256 == manifest.to_json()["sha256"]


TAMPERED = [
    ("heldout_floor", lambda data: data.update(heldout_floor=0.5)),
    ("task", lambda data: data["train"][0].update(seed=10**9)),
    ("order", lambda data: data["train"].reverse()),
    ("dropped", lambda data: data["heldout"].pop()),
    ("moved", lambda data: data["heldout"].append(data["train"].pop())),
    ("key", lambda data: data.update(note="x")),
    ("sha256", lambda data: data.update(sha256="0" * 64)),
    ("no sha256", lambda data: data.pop("sha256")),
]


@pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in TAMPERED])
def test_a_changed_manifest_is_refused(manifest, change):
    data = json.loads(json.dumps(manifest.to_json()))
    change(data)
    message = "the task manifest does not match its sha256; it was edited or torn"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Manifest.from_json(data)


def test_an_environment_without_enough_tasks_is_an_error_not_a_loop(monkeypatch):
    monkeypatch.setattr(splits, "MAX_DUPLICATES", 300)
    with pytest.raises(GenerationError, match=r"^300 tasks in a row .* after \d+ different ones;"):
        build_manifest(SokobanEnv(size=5), train_tasks=10**6, heldout_tasks=1, split_seed=0)


def test_nothing_held_out_is_refused():
    with pytest.raises(ValueError, match=r"^heldout_tasks is 0; at least 1 is needed$"):
        build_manifest(SokobanEnv(), train_tasks=1, heldout_tasks=0, split_seed=0)
