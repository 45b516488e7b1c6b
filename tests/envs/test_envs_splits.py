"""Splits: disjoint by content, frozen with a digest; cases.md A3."""

import hashlib
import json
import re
from dataclasses import replace

import pytest

from rltune_envs import draw, splits
from rltune_envs.base import Task
from rltune_envs.bounds import Floor, FloorKind
from rltune_envs.errors import GenerationError
from rltune_envs.splits import Manifest, build_manifest, report, require_disjoint
from tests.coin_env import CoinEnv

PARTS = ("heldout", "test", "train")  # in the order in which they are drawn


def many():
    """Return an environment with 900 tasks, of which amounts up to about 50 can be paid."""
    return CoinEnv(max_amount=900)


@pytest.fixture(scope="module")
def manifest():
    return build_manifest(many(), train_tasks=500, heldout_tasks=100, test_tasks=60, split_seed=0)


def test_no_content_is_in_two_splits_or_twice_in_one(manifest):
    hashes = [task.content_hash for part in PARTS for task in getattr(manifest, part)]

    assert [len(getattr(manifest, part)) for part in PARTS] == [100, 60, 500]
    assert len(set(hashes)) == 660
    require_disjoint(manifest)


def test_the_stream_of_seeds_does_hold_duplicates(manifest):
    # So the test above had something to find.
    drawn = manifest.train[-1].seed + 1
    distinct = {many().task(seed).content_hash for seed in range(drawn)}

    assert manifest.n_duplicates == drawn - 660 > 0
    assert len(distinct) == 660


def test_held_out_is_drawn_first_then_test_then_train(manifest):
    # Skipping what was seen, the splits are one walk along the seeds.
    first_seen = {}
    for seed in range(manifest.train[-1].seed + 1):
        first_seen.setdefault(many().task(seed).content_hash, seed)
    walk = [task.seed for task in (*manifest.heldout, *manifest.test, *manifest.train)]

    assert walk == sorted(first_seen.values())


@pytest.mark.parametrize("more", ["train_tasks", "test_tasks"])
def test_more_of_a_later_split_leaves_the_earlier_ones_alone(more):
    sizes = {"train_tasks": 10, "heldout_tasks": 20, "test_tasks": 5}
    few = build_manifest(many(), split_seed=0, **sizes)
    plenty = build_manifest(many(), split_seed=0, **(sizes | {more: 50}))

    assert few.heldout == plenty.heldout
    assert few.test == plenty.test[:5]
    assert (few.train == plenty.train[:10]) is (more == "train_tasks")


LEAKS = [  # (from, to, message)
    ("train", "test", "1 tasks are both in train and in test, {} first"),
    ("train", "heldout", "1 tasks are both in train and in heldout, {} first"),
    ("heldout", "test", "1 tasks are both in heldout and in test, {} first"),
    ("test", "train", "1 tasks are both in train and in test, {} first"),
    ("test", "test", "1 tasks are twice in test, {} first"),
    ("train", "train", "1 tasks are twice in train, {} first"),
]


@pytest.mark.parametrize(("source", "target", "message"), LEAKS)
def test_a_leaked_task_is_named(manifest, source, target, message):
    leaked = getattr(manifest, source)[17]
    copy = replace(leaked, seed=10**9)  # another seed; the same content
    bad = replace(manifest, **{target: (*getattr(manifest, target), copy)})

    with pytest.raises(ValueError, match=f"^{re.escape(message.format(leaked.task_id))}$"):
        Manifest.from_json(bad.to_json())  # although its digest is right


def test_each_task_makes_what_it_describes(manifest):
    for part in PARTS:
        assert all(many().task(task.seed) == task for task in getattr(manifest, part))


def test_floor_and_ceiling(manifest):
    for tasks, floor, ceiling in (
        (manifest.heldout, manifest.heldout_floor, manifest.heldout_ceiling),
        (manifest.test, manifest.test_floor, manifest.test_ceiling),
    ):
        floors = [many().random_success_probability(task.seed) for task in tasks]
        n_payable = sum(task.difficulty <= 10 for task in tasks)

        assert floor == Floor(FloorKind.EXACT, sum(floors) / len(tasks))
        assert floor.rate > 0
        assert ceiling == n_payable / len(tasks)
        assert 0 < n_payable < len(tasks)


def test_without_a_test_split_there_is_nothing_to_expect():
    made = build_manifest(many(), train_tasks=0, heldout_tasks=1, split_seed=0)

    assert (made.test, made.test_floor, made.test_ceiling) == ((), None, None)
    assert report(made)["test"] == {"n": 0, "difficulty": {}, "near_train": 0, "example": None}


def test_a_split_seed_names_one_set_of_splits():
    def build(split_seed):
        sizes = {"train_tasks": 30, "heldout_tasks": 10, "test_tasks": 10}
        return build_manifest(many(), split_seed=split_seed, **sizes)

    assert build(0) == build(0)
    assert build(0).sha256 != build(1).sha256
    assert {task.seed for task in build(0).train}.isdisjoint(task.seed for task in build(1).train)
    assert max(task.seed for task in build(splits.MAX_SPLIT_SEED).test) < 2**63


def toy(name, *, near, difficulty=1):
    digest = hashlib.sha256(name.encode()).hexdigest()
    return Task(name, 0, digest, near, difficulty)


def test_the_report_by_hand():
    made = Manifest(
        train=(toy("t1", near="x"), toy("t2", near="x"), toy("t3", near="y", difficulty=3)),
        heldout=(toy("h1", near="z"), toy("h2", near="x", difficulty=2), toy("h3", near="y")),
        test=(toy("e1", near="z"), toy("e2", near="q")),  # near a held-out task only
        heldout_floor=Floor(FloorKind.EXACT, 0.0),
        heldout_ceiling=1.0,
        n_duplicates=0,
    )

    assert report(made) == {
        "train": {"n": 3, "difficulty": {"1": 2, "3": 1}},
        # h2 is near t1 and t2, h3 is near t3
        "heldout": {
            "n": 3, "difficulty": {"1": 2, "2": 1}, "near_train": 2, "example": ["h2", "t1"],
        },
        "test": {"n": 2, "difficulty": {"1": 2}, "near_train": 0, "example": None},
    }  # fmt: skip
    assert made.to_json()["report"] == report(made)


def test_a_histogram_counts_difficulties_as_numbers(manifest):
    difficulties = list(report(manifest)["train"]["difficulty"])

    assert difficulties == sorted(difficulties, key=int) != sorted(difficulties)


def test_a_manifest_reads_back_as_itself(manifest):
    again = Manifest.from_json(json.loads(json.dumps(manifest.to_json())))

    assert again == manifest
    assert again.sha256 == manifest.sha256 == manifest.to_json()["sha256"]


def test_facts_and_unit_read_back():
    class Facts(CoinEnv):
        difficulty_unit = "hops"

        def task(self, seed):
            return replace(super().task(seed), facts={"kind": "bridge", "n": 2, "is_x": True})

    made = build_manifest(Facts(), train_tasks=2, heldout_tasks=2, split_seed=0)
    again = Manifest.from_json(json.loads(json.dumps(made.to_json())))

    assert again == made
    assert again.difficulty_unit == "hops"


TAMPERED = [
    ("heldout_floor", lambda data: data["heldout_floor"].update(rate=0.5)),
    ("floor kind", lambda data: data["heldout_floor"].update(kind="measured")),
    ("proved", lambda data: data.update(proved="none")),
    ("test_ceiling", lambda data: data.update(test_ceiling=0.5)),
    ("task", lambda data: data["train"][0].update(seed=10**9)),
    ("order", lambda data: data["train"].reverse()),
    ("dropped", lambda data: data["test"].pop()),
    ("moved", lambda data: data["heldout"].append(data["train"].pop())),
    ("report", lambda data: data["report"]["test"].update(near_train=1)),
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


def test_a_manifest_of_another_version_is_refused(manifest):
    body = {key: value for key, value in manifest.to_json().items() if key != "sha256"}
    body["note"] = body.pop("test")
    data = {**body, "sha256": splits._digest(body)}
    message = (
        "the task manifest is of another version: note, test is missing or unknown; start a new "
        "sweep folder"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Manifest.from_json(data)


def test_an_environment_without_enough_tasks_is_an_error_not_a_loop():
    message = (
        "the environment has 40 different tasks (10000 in a row had been drawn before), but "
        "heldout_tasks=20, test_tasks=6, train_tasks=15 need 41; lower some of them (in a config: "
        "gate.tasks, env.train_tasks, gate.test_tasks), or give the environment more"
    )
    with pytest.raises(GenerationError, match=f"^{re.escape(message)}$"):
        build_manifest(CoinEnv(), heldout_tasks=20, train_tasks=15, test_tasks=6, split_seed=0)
    build_manifest(CoinEnv(), heldout_tasks=20, train_tasks=15, test_tasks=5, split_seed=0)


def test_duplicates_count_in_a_row_only(monkeypatch):
    # To find all 40 tasks takes some 130 duplicates, but never 100 in a row.
    monkeypatch.setattr(draw, "MAX_DUPLICATES", 100)
    made = build_manifest(CoinEnv(), heldout_tasks=20, train_tasks=20, split_seed=3)

    assert made.n_duplicates > 100


WRONG = [
    (
        {"heldout_tasks": 0},
        "heldout_tasks is 0, test_tasks is 0, train_tasks is 1; at least 1 held-out task is "
        "needed, and no number below 0",
    ),
    (
        {"test_tasks": -1},
        "heldout_tasks is 1, test_tasks is -1, train_tasks is 1; at least 1 held-out task is "
        "needed, and no number below 0",
    ),
    ({"split_seed": -1}, "split_seed is -1; choose one from 0 to 8388607"),
    ({"split_seed": 2**23}, "split_seed is 8388608; choose one from 0 to 8388607"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_numbers_are_refused(changes, message):
    arguments = {"train_tasks": 1, "heldout_tasks": 1, "split_seed": 0} | changes
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build_manifest(CoinEnv(), **arguments)
