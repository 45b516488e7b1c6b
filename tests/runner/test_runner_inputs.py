"""What a trial read is compared with what is there: before a launch, and before a trial goes on."""

import json
import re
from pathlib import Path

import pytest
from small_sweep import levels, small_sweep

from rltune.errors import StoreError
from rltune.runner.inputs import require_inputs_of, require_same_inputs
from rltune.runner.sweep import SweepRequest, run_sweep
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.store.files import read_json, write_json_atomic
from rltune.store.inputs import digests
from rltune.store.jsonl import append_jsonl
from rltune.store.rundir import RunDir
from rltune_envs.sokoban.levels import load_levels


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder whose sweep plays the levels of a file."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "levels.txt").write_text(levels(24), encoding="utf-8")
    text = small_sweep(policy="tiny", train_tasks=8, test_tasks=0, values="[0.0, 0.1]")
    text = text.replace(
        "  env.prompt: compact\n", "  env.prompt: compact\n  env.levels: levels.txt\n"
    )
    (folder / "small.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def ran(run, base, trial_id="a", *, step=0, inputs=("levels.txt",), folder=None):
    """Make the records of a trial that read files in `base`."""
    trial = run.trial(trial_id).create()
    read = digests([Path(name) for name in inputs], base)
    write_json_atomic(trial.provenance, {"inputs": read, "base": str(folder or base)})
    if step is not None:
        append_jsonl(trial.metrics, {"step": step})
    return trial


def test_what_changed_or_went_is_named_with_its_trials(work):
    run = RunDir(work / "run").create()
    (work / "gone.txt").write_text("x")
    for name in "abcd":
        ran(run, work, name)
    ran(run, work, "e", inputs=("gone.txt",))
    require_same_inputs(run, work)
    (work / "levels.txt").write_text("other")
    (work / "gone.txt").unlink()
    with pytest.raises(StoreError) as refused:
        require_same_inputs(run, work)
    assert str(refused.value).splitlines() == [
        "levels.txt: has changed since these trials read it: a, b, c and 1 more. Restore it. To "
        "keep both versions, use another --runs-dir, or another file name in the config; or delete "
        f"the folders of these trials in {run.trials} to run them again.",
        "gone.txt: is gone since these trials read it: e. Restore it. To keep both versions, use "
        "another --runs-dir, or another file name in the config; or delete the folders of these "
        f"trials in {run.trials} to run them again.",
    ]


def test_a_trial_that_measured_nothing_may_be_repaired(work):
    run = RunDir(work / "run").create()
    ran(run, work, step=None)
    (work / "levels.txt").write_text("repaired")
    require_same_inputs(run, work)


def test_an_older_trial_has_nothing_to_compare(work):
    run = RunDir(work / "run").create()
    trial = ran(run, work)
    write_json_atomic(trial.provenance, {"commit": "c"})
    (work / "levels.txt").unlink()
    require_same_inputs(run, work)
    require_inputs_of(trial, {}, work)


def test_another_folder_with_other_files_is_told_apart(work, tmp_path):
    """A relative path means another file there."""
    run = RunDir(work / "run").create()
    trial = ran(run, work)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    said = f"Relative paths refer to {work}, where the trial ran: run the command there."
    with pytest.raises(StoreError, match=re.escape(said)):
        require_same_inputs(run, elsewhere)
    (elsewhere / "levels.txt").write_bytes((work / "levels.txt").read_bytes())
    require_same_inputs(run, elsewhere)  # the same content is the same input
    require_inputs_of(trial, json.loads(trial.provenance.read_text()), elsewhere)


def request(work):
    loaded = load_sweep(work / "small.yaml")
    return SweepRequest(loaded, work / "runs", None, None, None, ("rltune", "sweep"))


class EnoughError(Exception):
    """Raised once the folder is written: nothing may start."""


def launch(work):
    def enough(*_):
        raise EnoughError

    asked = request(work)
    with pytest.raises(EnoughError):
        run_sweep(asked, on_start=enough, on_tick=lambda *_: None)
    return RunDir(asked.runs_dir.resolve() / asked.loaded.run_name)


def test_a_launch_refuses_before_it_writes_anything(work):
    """All levels but the first: the frozen tasks alone would not show it."""
    run = launch(work)
    first = expand(request(work).loaded)[0].trial_id
    ran(run, work, first)
    text = (work / "levels.txt").read_text()
    before = read_json(run.plan)
    (work / "levels.txt").write_text(text + levels(1, width=6))
    with pytest.raises(StoreError, match=r"^levels\.txt: has changed since these trials read it: "):
        run_sweep(request(work), on_start=lambda *_: None, on_tick=lambda *_: None)
    assert read_json(run.plan) == before
    (work / "levels.txt").write_text(text)
    launch(work)


def test_tasks_are_drawn_anew_while_nothing_was_measured_on_them(work):
    run = launch(work)
    first = read_json(run.tasks())["sha256"]
    assert read_json(run.inputs) == {"tasks.json": digests([Path("levels.txt")], work)}
    launch(work)
    assert read_json(run.tasks())["sha256"] == first
    (work / "levels.txt").write_text(levels(24, width=6))
    load_levels.cache_clear()  # as in a new process
    again = launch(work)
    assert read_json(again.tasks())["sha256"] != first
    assert read_json(again.plan)["tasks"] == {"tasks.json": read_json(again.tasks())["sha256"]}
