"""Named evaluation sets: apart from what is trained on, equally many of each, proven and named."""

import json

import pytest

from rltune_envs.base import SET
from rltune_envs.checks import check_env
from rltune_envs.errors import GenerationError
from rltune_envs.multihop_qa import MultihopQaEnv
from rltune_envs.protocols import HasEvalSets, supports
from rltune_envs.rewards import SCORES, Rubric, Term
from rltune_envs.splits import build_manifest
from rltune_envs.verified import VerifiedEnv


def write(folder, name, n, first=0):
    rows = [{"question": f"Who is {first + i}?", "golden_answers": [f"p{i}"]} for i in range(n)]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def files(folder, **sizes):
    """Write all files; return the arguments that name them."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text('{"title": "Ulm", "text": "A town."}\n')
    sets = {
        name: {"file": write(folder, name, n, 1000 * i), "file_format": "auto"}
        for i, (name, n) in enumerate(sizes.items(), start=1)
    }
    train = write(folder, "train", 30)
    return {"questions": train, "corpus": str(corpus), "eval": sets}


def make(folder, **sizes):
    return MultihopQaEnv(**files(folder, **sizes))


def test_the_order_in_which_sets_are_written_changes_no_task(tmp_path):
    """A config's hash does not know that order either."""
    make(tmp_path, nq=5, popqa=9)
    sets = {name: {"file": str(tmp_path / f"{name}.jsonl"), "file_format": "auto"}
            for name in ("nq", "popqa")}  # fmt: skip
    made = []
    for order in (["nq", "popqa"], ["popqa", "nq"]):
        env = MultihopQaEnv(
            questions=str(tmp_path / "train.jsonl"),
            corpus=str(tmp_path / "corpus.jsonl"),
            eval={name: sets[name] for name in order},
        )
        made.append(build_manifest(env, train_tasks=9, heldout_tasks=5, test_tasks=3, split_seed=0))
    assert made[0] == made[1]


def sets_of(tasks):
    return [task.facts.get(SET) for task in tasks]


def test_heldout_and_test_tasks_come_evenly_from_the_sets(tmp_path):
    env = make(tmp_path, nq=5, popqa=9)
    tasks = build_manifest(env, train_tasks=30, heldout_tasks=5, test_tasks=4, split_seed=3)
    assert sets_of(tasks.heldout) == ["nq"] * 3 + ["popqa"] * 2  # the first gives one more
    assert sets_of(tasks.test) == ["nq"] * 2 + ["popqa"] * 2
    assert set(sets_of(tasks.train)) == {None}
    assert len(tasks.train) == 30  # every row of its file
    assert tasks.n_duplicates == 0
    for task in (*tasks.heldout, *tasks.test, *tasks.train):
        first = {"nq": 1000, "popqa": 2000}.get(task.facts.get(SET), 0)
        number = int(env.reset(seed=task.seed).split("Who is ")[1].split("?")[0])
        assert first <= number < first + 1000
        assert env.task(task.seed) == task


def test_a_row_of_a_set_is_never_trained_on(tmp_path):
    env = make(tmp_path, nq=5)
    write(tmp_path, "nq", 5)  # the first five rows of the training file
    tasks = build_manifest(env, train_tasks=25, heldout_tasks=5, split_seed=0)
    assert tasks.n_duplicates <= 5
    hashes = [{task.content_hash for task in part} for part in (tasks.heldout, tasks.train)]
    assert len(hashes[0] | hashes[1]) == 30


def test_tasks_do_not_depend_on_the_number_of_training_tasks(tmp_path):
    env = make(tmp_path, nq=5, popqa=9)
    few, many = (build_manifest(env, train_tasks=n, heldout_tasks=4, split_seed=1) for n in (0, 30))
    assert few.heldout == many.heldout


@pytest.mark.parametrize(
    ("heldout", "message"),
    [
        (1, r"^heldout_tasks=1 leaves no task for some of the 2 sets of env\.eval; give at le"),
        (12, r"^the set 'nq' of env\.eval has only 5 tasks left for heldout, but heldout_tasks=12 "
         r"over 2 sets need 6 of each; lower it \(in a config: gate\.tasks, gate\.test_tasks\)$"),
    ],
)  # fmt: skip
def test_sets_that_are_too_small_are_named(tmp_path, heldout, message):
    with pytest.raises(GenerationError, match=message):
        build_manifest(
            make(tmp_path, nq=5, popqa=9), train_tasks=1, heldout_tasks=heldout, split_seed=0
        )


def test_without_sets_nothing_changes(tmp_path):
    env = make(tmp_path)
    assert env.eval_sets() == {}
    tasks = build_manifest(env, train_tasks=20, heldout_tasks=10, split_seed=2)
    assert SET not in tasks.heldout[0].facts
    first = 2 * 2**40
    assert sorted(task.seed for task in (*tasks.heldout, *tasks.train)) == list(
        range(first, first + 30)
    )


def test_a_wrapper_passes_the_sets_on(tmp_path):
    rubric = Rubric((Term("f1", 1.0, SCORES["success"]),))
    env = VerifiedEnv(make(tmp_path, nq=5), rubric)
    assert supports(env, HasEvalSets)
    assert env.eval_sets() == {"nq": 2**32}


def test_the_environment_keeps_its_contract(tmp_path):
    arguments = files(tmp_path, nq=5)
    check_env(lambda: MultihopQaEnv(**arguments), seeds=(0, 2**32, 2**32 + 1))


def test_sets_beside_the_closed_world_are_refused():
    with pytest.raises(ValueError, match=r"^eval: nq cannot be measured beside the closed world"):
        MultihopQaEnv(eval={"nq": {"file": "x", "file_format": "auto"}})
