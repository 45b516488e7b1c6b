"""Children and repetitions: their folders, and where they come from."""

import pytest

from rltune.errors import EvalOverrunError, StoreError, TrainOverrunError
from rltune.store.failure import TrialFailure, failure_kind
from rltune.store.origin import Origin, read_origin, write_origin
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialStatus

ORIGIN = Origin(
    kind="child",
    parent="t-s0-0123456789",
    folder="trials/t-s0-0123456789",
    step=4,
    which="best",
    weights_sha256="ab",
    changes={"budget.steps": [2, 4]},
    software=("commit: a then, b now",),
)


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run").create()


def test_each_repetition_has_a_folder_of_its_own(run):
    folders = [run.new_rerun(name).path for name in ("a", "a", "b")]
    names = [path.relative_to(run.path).as_posix() for path in folders]
    assert names == ["reruns/0001/a", "reruns/0002/a", "reruns/0003/b"]
    assert run.trial_dirs() == ()  # no seed of the sweep
    with pytest.raises(StoreError, match="cannot name a folder"):
        run.new_rerun("../a")


def test_a_folder_that_another_process_took_is_not_used(run, monkeypatch):
    run.new_rerun("a")
    monkeypatch.setattr(type(run.path), "glob", lambda *_: iter(()))  # as if it had looked before
    assert run.new_rerun("a").path.parent.name == "0002"


def test_children_are_those_that_have_begun(run):
    assert run.child_dirs() == ()
    begun = run.child("b").create()
    run.child("c").create()
    begun.spec.write_text("{}")
    assert run.child_dirs() == (begun,)


def test_an_origin_is_read_as_written(run):
    trial = run.child("t").create()
    assert read_origin(trial) is None
    write_origin(trial, ORIGIN)
    assert read_origin(trial) == ORIGIN


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": "rltune-origin-1", "software": []}'])
def test_an_origin_that_cannot_be_read_is_refused(run, text):
    trial = run.child("t").create()
    trial.origin.write_text(text)
    with pytest.raises(StoreError, match=r"origin\.json: does not say where this trial comes from"):
        read_origin(trial)


def test_overruns_have_their_own_status():
    assert failure_kind(TrainOverrunError(), step=3) is RowStatus.TRAIN_BUDGET_OVERRUN
    kind = failure_kind(EvalOverrunError(), step=None)
    assert kind is RowStatus.EVAL_BUDGET_OVERRUN
    assert TrialFailure(kind, "").trial_status is TrialStatus.FAILED
