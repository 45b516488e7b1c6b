"""Problems of a file with a verifier: episodes, splits and the whole contract."""

import json

import pytest

from rltune_envs.bounds import FloorKind
from rltune_envs.checks import check_env
from rltune_envs.errors import GenerationError, TaskError
from rltune_envs.protocols import HasParts, supports
from rltune_envs.rewards import Rubric, Term, find_score
from rltune_envs.splits import Manifest, Proof, build_manifest, require_same_files
from rltune_envs.verified import VerifiedEnv
from rltune_envs.verified_task import VerifiedTaskEnv


def rows_of(n, start=0):
    return [
        {"question": f"What is {i} + {i + 1}?", "answer": str(2 * i + 1)}
        for i in range(start, start + n)
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def env_of(tmp_path, rows=None, **options):
    path = write(tmp_path / "p.jsonl", rows_of(60) if rows is None else rows)
    return VerifiedTaskEnv(**{"train": path, "verifier": {"kind": "number"}, **options})


CHOICES = [
    {"question": f"Which is {i}?", "choices": [f"n{i}", f"m{i}", f"o{i}"], "answer": f"m{i}"}
    for i in range(20)
]
OPTIONS = {
    "number": {},
    "boxed": {"verifier": {"kind": "boxed"}},
    "exact": {"verifier": {"kind": "exact"}},
    "regex": {"verifier": {"kind": "regex", "pattern": "=(.*)"}},
    "regex with form": {"verifier": {"kind": "regex", "pattern": "=(.*)", "form": "={answer}"}},
    "turns": {"max_turns": 3},
    "choices": {
        "rows": CHOICES,
        "verifier": {"kind": "multiple_choice"},
        "choices_column": "choices",
        "template": "{question}\n{choices}",
        "max_turns": 2,
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_contract_holds(tmp_path, name):
    options = dict(OPTIONS[name])
    path = write(tmp_path / "p.jsonl", options.pop("rows", rows_of(60)))
    options = {"train": path, "verifier": {"kind": "number"}, **options}
    checked = check_env(lambda: VerifiedTaskEnv(**options), seeds=range(8), threads=2)
    assert "reset" in checked.checked


def test_one_turn_ends_the_episode(tmp_path):
    env = env_of(tmp_path, rows_of(1))
    assert env.reset(seed=5) == "What is 0 + 1?"
    right = env.step("It is 1.")
    assert (right.reward, right.success, right.terminated, right.failure_class) == (
        1.0, True, True, "none"
    )  # fmt: skip
    env.reset(seed=5)
    assert env.step("It is 2.").failure_class == "wrong"
    env.reset(seed=5)
    unread = env.step("I do not know.")
    assert (unread.is_valid, unread.truncated, unread.failure_class) == (False, True, "malformed")


def test_feedback_gives_another_turn(tmp_path):
    env = env_of(tmp_path, rows_of(1), max_turns=2, feedback="No.", format_penalty=-0.5)
    env.reset(seed=0)
    first = env.step("two")
    assert (first.observation, first.reward, first.has_ended) == ("No.", -0.5, False)
    last = env.step("1")
    assert (last.reward, last.success, dict(last.auxiliary)) == (1.0, True, {"score": 1.0})


def test_choices_are_shown_with_letters(tmp_path):
    env = env_of(tmp_path, **{**OPTIONS["choices"], "rows": CHOICES[:1]})
    assert env.reset(seed=0) == "Which is 0?\n(A) n0\n(B) m0\n(C) o0"
    assert env.step("(B)").success


def test_a_share_of_the_rows_is_held_out_by_content(tmp_path):
    env = env_of(tmp_path, rows_of(300), heldout_share=0.2, test_share=0.1)
    parts = {part: set(env.part_seeds(part)) for part in ("train", "heldout", "test")}
    assert sum(map(len, parts.values())) == 300
    assert len(set.union(*parts.values())) == 300
    assert 40 <= len(parts["heldout"]) <= 80
    assert 15 <= len(parts["test"]) <= 45


def test_a_row_stays_in_its_split_when_others_come_or_move(tmp_path):
    def held_out(rows):
        env = env_of(tmp_path, rows)
        return {env.reset(seed=seed) for seed in env.part_seeds("heldout")}

    few = held_out(rows_of(50))
    write(tmp_path / "q.jsonl", rows_of(80)[::-1])
    env = VerifiedTaskEnv(train=str(tmp_path / "q.jsonl"), verifier={"kind": "number"})
    more = {env.reset(seed=seed) for seed in env.part_seeds("heldout")}
    assert few <= more


def test_files_of_their_own_for_the_splits(tmp_path):
    heldout = write(tmp_path / "h.jsonl", rows_of(7, start=100))
    env = env_of(tmp_path, rows_of(40), heldout=heldout, test_share=0.0)
    assert [len(env.part_seeds(part)) for part in ("train", "heldout", "test")] == [40, 7, 0]
    manifest = build_manifest(env, train_tasks=4096, heldout_tasks=5, split_seed=3)
    assert len(manifest.train) == 40
    assert {task.facts["source"].partition(":")[0] for task in manifest.heldout} == {"h.jsonl"}
    assert (manifest.proved, manifest.heldout_ceiling) == (Proof.EXPERT, 1.0)
    assert manifest.heldout_floor.kind is FloorKind.START


def test_near_duplicates_are_the_same_text_with_other_numbers(tmp_path):
    env = env_of(tmp_path)
    manifest = build_manifest(env, train_tasks=20, heldout_tasks=3, split_seed=0)
    assert manifest.to_json()["report"]["heldout"]["near_train"] == 3


def test_the_floor_of_choices_is_exact(tmp_path):
    env = env_of(tmp_path, **OPTIONS["choices"])
    manifest = build_manifest(env, train_tasks=5, heldout_tasks=1, split_seed=0)
    assert manifest.heldout_floor.kind is FloorKind.EXACT
    assert manifest.heldout_floor.rate == pytest.approx(1 - (2 / 3) ** 2)


def test_too_few_held_out_rows(tmp_path):
    heldout = write(tmp_path / "h.jsonl", rows_of(7, start=100))
    env = env_of(tmp_path, heldout=heldout)
    with pytest.raises(GenerationError) as caught:
        build_manifest(env, train_tasks=4096, heldout_tasks=32, split_seed=0)
    assert str(caught.value) == (
        "its heldout split has 7 tasks, but gate.tasks is 32; lower it, or give more rows: by "
        "env.heldout_share, or in a file env.heldout"
    )


def test_repeated_rows_count_once(tmp_path):
    env = env_of(tmp_path, [*rows_of(20), *rows_of(3)])
    assert sum(len(env.part_seeds(part)) for part in ("train", "heldout", "test")) == 20
    manifest = build_manifest(env, train_tasks=20, heldout_tasks=1, split_seed=0)
    assert manifest.n_duplicates == 3


def test_a_repeated_task_of_a_part_counts_once(tmp_path):
    class Twice(VerifiedTaskEnv):
        def part_seeds(self, part):
            seeds = super().part_seeds(part)
            return [*seeds, *(seed + 20 for seed in seeds)]

    path = write(tmp_path / "p.jsonl", rows_of(20))
    env = Twice(train=path, verifier={"kind": "number"}, test_share=0.0)
    n = {part: len(env.part_seeds(part)) // 2 for part in ("train", "heldout")}
    manifest = build_manifest(env, train_tasks=40, heldout_tasks=n["heldout"], split_seed=0)
    assert (len(manifest.train), len(manifest.heldout)) == (n["train"], n["heldout"])
    assert manifest.n_duplicates >= n["train"]
    with pytest.raises(GenerationError, match=f"has {n['heldout']} tasks, but gate.tasks is 20"):
        build_manifest(env, train_tasks=40, heldout_tasks=20, split_seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer_column": None}, "answer_column is None, but verifier 'number' compares with an "
         "answer"),
        ({"template": "{question} {answer}"}, "template shows {answer}, the answer; leave it out, "
         "or write {{answer}} for the word in braces"),
        ({"choices_column": "c"}, "choices_column is 'c', but verifier 'number' does not read "
         "choices"),
        ({"verifier": {"kind": "multiple_choice"}}, "choices_column is None, but verifier "
         "'multiple_choice' needs choices"),
        ({"heldout_share": 0.5, "test_share": 0.5}, "heldout_share is 0.5, test_share is 0.5: "
         "nothing is left to train on; lower one of them"),
        ({"heldout_share": 1.0}, "heldout_share is 1.0; give a number from 0 to below 1"),
    ],
)  # fmt: skip
def test_arguments_out_of_range(tmp_path, options, message):
    with pytest.raises(ValueError, match=r".") as caught:
        env_of(tmp_path, **options)
    assert str(caught.value) == message


def test_a_file_that_changed_behind_its_path_is_refused_by_name(tmp_path):
    env = env_of(tmp_path)
    manifest = build_manifest(env, train_tasks=20, heldout_tasks=3, split_seed=0)
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    require_same_files(env, manifest)
    write(tmp_path / "p.jsonl", rows_of(61))
    with pytest.raises(TaskError) as caught:
        require_same_files(env, manifest)
    name = "train: p.jsonl"
    now, was = env.file_digests()[name][:10], manifest.files[name][:10]
    assert str(caught.value) == (
        f"{name}: it changed after the tasks were frozen (sha256 {now}, was {was}); restore it, or "
        "start over in a new sweep folder"
    )


def test_a_file_that_changed_is_read_again(tmp_path):
    assert env_of(tmp_path, rows_of(1)).reset(seed=0) == "What is 0 + 1?"
    assert env_of(tmp_path, rows_of(1, start=10)).reset(seed=0) == "What is 10 + 11?"


def test_the_worked_example_of_a_verifier(tmp_path):
    rows = [{"question": "Which two?", "answer": "left right"}]
    verifier = {"kind": "examples.my_verifier:score"}
    env = env_of(tmp_path, rows, verifier=verifier, heldout_share=0.0, test_share=0.0)
    rewards = {}
    for response in ("right left", "left", ""):
        env.reset(seed=0)
        step = env.step(response)
        rewards[response] = (step.reward, step.success)
    assert rewards == {"right left": (1.0, True), "left": (0.5, False), "": (0.0, False)}
    assert env.gold(0)["answers"] == ["left right"]


def test_a_rubric_judges_problems_too(tmp_path):
    rubric = Rubric((Term("score", 2.0, find_score("score", auxiliary_names=("score",))),))
    env = VerifiedEnv(env_of(tmp_path, rows_of(1)), rubric)
    env.reset(seed=0)
    assert env.step("1").reward == 2.0
    assert supports(env, HasParts)
    check_env(lambda: VerifiedEnv(env_of(tmp_path), rubric), seeds=range(4), threads=1)
