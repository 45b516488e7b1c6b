import json
import os

import pytest

from rltune.store.cleaning import remove, size_of, spares
from rltune.store.files import link_atomic
from rltune.store.new_folder import new_folder
from rltune.store.rundir import RunDir, TrialDir


@pytest.fixture
def run(tmp_path):
    """A finished trial with four checkpoints, an unfinished one with two, and rubbish."""
    run = RunDir(tmp_path / "run").create()
    for name, steps in (("done", (0, 2, 4, 6)), ("open", (0, 2))):
        trial = run.trial(name).create()
        trial.metrics.write_text('{"step": 0}\n')
        for step in steps:
            trial.checkpoint(step).mkdir(parents=True)
            (trial.checkpoint(step) / "policy.safetensors").write_bytes(b"x" * 10_000)
        link_atomic(trial.latest, trial.checkpoint(steps[-1]).name)
        link_atomic(trial.best_heldout, trial.checkpoint(2).name)
    run.trial("done").done.write_text("{}")
    (run.trial("open").checkpoints / "torn-step-000004").mkdir()
    (run.trial("open").checkpoints / ".step-000006.part").mkdir()
    (run.path / ".plan.json.77-ab.tmp").write_text("{")
    (run.tune / "launch-0001" / "experiment").mkdir(parents=True)
    (run.tune / "launch-0001" / "STOP").touch()
    return run


def test_children_and_repetitions_are_cleaned_like_trials_and_keep_their_start(run):
    for trial in (run.child("kid"), TrialDir(run.reruns / "0001" / "done")):
        trial.create()
        trial.spec.write_text("{}")
        trial.start.parent.mkdir()
        trial.start.write_bytes(b"x")
        trial.done.write_text("{}")
        for step in (0, 2, 4):
            trial.checkpoint(step).mkdir(parents=True)
        link_atomic(trial.latest, trial.checkpoint(4).name)
        link_atomic(trial.best_heldout, trial.checkpoint(2).name)
    found = [name for name in names(run) if name.startswith(("children", "reruns"))]
    assert found == [
        "children/kid/checkpoints/step-000000",
        "reruns/0001/done/checkpoints/step-000000",
    ]


def names(run, **options):
    return [str(spare.path.relative_to(run.path)) for spare in spares(run, **options)]


RUBBISH = [
    ".plan.json.77-ab.tmp",
    "trials/open/checkpoints/.step-000006.part",
    "trials/open/checkpoints/torn-step-000004",
    "tune/launch-0001/experiment",
]


def test_what_nobody_needs_may_go(run):
    old = [f"trials/done/checkpoints/step-00000{step}" for step in (0, 4)]
    assert names(run) == sorted([*RUBBISH, *old])


def test_best_only_keeps_the_chosen_checkpoint_of_a_finished_trial(run):
    old = [f"trials/done/checkpoints/step-00000{step}" for step in (0, 4, 6)]
    assert names(run, best_only=True) == sorted([*RUBBISH, *old, "trials/done/checkpoints/latest"])


def test_without_a_chosen_checkpoint_all_stay(run):
    run.trial("done").best_heldout.unlink()
    assert names(run, best_only=True) == sorted(RUBBISH)


def test_nothing_else_is_removed_and_a_second_time_there_is_nothing(run):
    before = set(run.path.rglob("*"))
    found = spares(run)
    remove(found)
    remove(found)
    gone = before - set(run.path.rglob("*"))
    assert all(any(path.is_relative_to(spare.path) for spare in found) for path in gone)
    assert spares(run) == ()
    assert run.trial("done").best_heldout.is_dir()
    assert run.trial("open").latest.is_dir()
    assert (run.tune / "launch-0001" / "STOP").exists()  # launches are counted by their folders


def test_the_size_is_that_on_disk_and_links_count_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 5000)
    os.symlink(tmp_path / "a", tmp_path / "link")
    os.symlink(tmp_path / "nowhere", tmp_path / "broken")
    assert size_of(tmp_path) == (tmp_path / "a" / "file").stat().st_blocks * 512 >= 5000
    assert size_of(tmp_path / "gone") == 0


def test_half_a_done_marker_is_none_and_its_trial_keeps_everything(run):
    run.trial("done").done.write_text('{"status": ')
    assert names(run, best_only=True) == sorted(RUBBISH)


def test_a_folder_that_goes_while_it_is_measured_counts_nothing(tmp_path, monkeypatch):
    """`status` measures a live sweep, whose checkpoints come and go."""
    (tmp_path / "gone").mkdir()

    def iterdir(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr("pathlib.Path.iterdir", iterdir)
    assert size_of(tmp_path / "gone") == 0


def plan(folder, model="tiny", init="default"):
    """Write the plan of a run with one trial."""
    folder.mkdir(exist_ok=True)
    config = {"policy": {"model": model, "lora": {"init": init}}}
    (folder / "plan.json").write_text(json.dumps({"trials": [{"config": config}]}))


@pytest.fixture
def exports(run):
    """Models of `done`: of checkpoints that stay (2, 6), and of one that is a spare (4)."""
    for name in ("done@2", "done@4", "done@6", "done@6-adapter"):
        (run.models / name).mkdir(parents=True)
        (run.models / name / "SHA256SUMS").write_text("x")
    plan(run.path)
    return run


def models(run):
    return [name.removeprefix("models/") for name in names(run) if name.startswith("models/")]


def test_models_that_nothing_refers_to_may_go_while_their_checkpoint_stays(exports):
    assert models(exports) == ["done@2", "done@6", "done@6-adapter"]
    remove(spares(exports))
    assert [path.name for path in exports.models.iterdir()] == ["done@4"]
    assert models(exports) == []  # the only copy of its checkpoint by now


@pytest.mark.parametrize(
    "policy",
    [
        {"model": "trial:run/done@6"},
        {"model": "trial:../elsewhere/run/do"},  # a start of the id; the path may mean this run
        {"init": "trial:run/done"},
    ],
)
def test_models_that_a_run_refers_to_stay(exports, policy):
    plan(exports.path.parent / "child", **policy)
    assert models(exports) == []


def test_models_that_another_run_means_do_not_count(exports):
    plan(exports.path.parent / "child", model="trial:other/done@6")
    assert models(exports) == ["done@2", "done@6", "done@6-adapter"]


def test_with_a_plan_that_cannot_be_read_all_models_stay(exports):
    (exports.path.parent / "child").mkdir()
    (exports.path.parent / "child" / "plan.json").write_text("{")
    assert models(exports) == []


def test_an_export_that_is_being_written_stays_and_a_dead_one_goes(exports):
    (exports.models / ".done@0.part").mkdir()
    with new_folder(exports.models / "done@8", "models") as part:
        (part / "config.json").write_text("{}")
        assert ".done@0.part" in models(exports)
        assert ".done@8.part" not in models(exports)
        remove(spares(exports))
        assert (part / "config.json").exists()
    assert (exports.models / "done@8" / "config.json").exists()
