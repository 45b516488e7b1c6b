"""What every tracker promises, over each one that rltune has."""

from functools import partial

import pytest

from rltune.store.jsonl import append_jsonl, read_metrics
from rltune.track.base import Artifact, Histogram, MultiTracker, Table
from rltune.track.jsonl import JsonlTracker
from rltune.track.wandb_tracker import WandbRun, WandbTracker
from rltune.types import TrialStatus


class Recorder:
    """A tracker that remembers, in a list shared with others."""

    def __init__(self, name, calls, *, fail_on_close):
        self._name, self._calls, self._fail_on_close = name, calls, fail_on_close

    shows_media = True

    def resume(self, rows):
        self._calls.append((self._name, ("resume", tuple(rows))))

    def media(self, step, items):
        self._calls.append((self._name, ("media", step, dict(items))))

    def use(self, artifact):
        self._calls.append((self._name, ("use", artifact)))

    def make(self, artifact):
        self._calls.append((self._name, ("make", artifact)))

    def log(self, step, metrics):
        self._calls.append((self._name, ("log", step, dict(metrics))))

    def summary(self, values):
        self._calls.append((self._name, ("summary", dict(values))))

    def close(self, status):
        self._calls.append((self._name, ("close", status)))
        if self._fail_on_close:
            raise OSError("disk full")


def jsonl(folder):
    return JsonlTracker(partial(append_jsonl, folder / "metrics.jsonl"))


def wandb_offline(folder):
    run = WandbRun(
        trial_id="t-0123456789",
        project="rltune",
        group="kl",
        tags=("axis:x",),
        config={"seed": 0},
        folder=folder,
        mode="offline",
    )
    return WandbTracker(run, pytest.fail)


def both(folder):
    return MultiTracker((jsonl(folder), wandb_offline(folder)))


@pytest.fixture(params=[jsonl, wandb_offline, both, lambda folder: MultiTracker(())])
def tracker(request, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    made = request.param(tmp_path)
    yield made
    made.close(TrialStatus.DONE)


def artifact(folder):
    (folder / "weights").write_bytes(b"w" * 8)
    return Artifact(name="policy-ff", kind="model", files={"weights": folder / "weights"})


TABLE = Table(("task", "success"), (("a", True), ("b", False)))
MEDIA = {"episodes": TABLE, "entropy": Histogram((1, 2), (0.0, 0.5, 1.0))}


def test_a_whole_trial(tracker, tmp_path):
    tracker.resume([])
    tracker.use(artifact(tmp_path))
    if tracker.shows_media:
        tracker.media(0, MEDIA)
    tracker.log(0, {"heldout/success_rate": 0.25})
    tracker.log(1, {"actor/pg_loss": float("nan"), "rollout/task_hash": "ff"})
    tracker.log(1, {"also/at_step": 1.0})
    tracker.log(5, {})
    tracker.summary({"best_step": 5, "note": "text"})
    tracker.make(artifact(tmp_path))
    tracker.close(TrialStatus.DONE)
    tracker.close(TrialStatus.FAILED)  # a second close does nothing


def test_nothing_was_logged(tracker):
    tracker.close(TrialStatus.FAILED)


def test_the_given_metrics_are_not_changed(tracker):
    metrics = {"x": 1.0, "text": "ff"}
    tracker.log(3, metrics)
    assert metrics == {"x": 1.0, "text": "ff"}


@pytest.mark.parametrize("make", [jsonl, wandb_offline])
@pytest.mark.parametrize(("step", "metrics"), [(-1, {}), (1, {"step": 2.0})])
def test_an_ambiguous_step_is_refused(make, step, metrics, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made = make(tmp_path)
    with pytest.raises(ValueError, match=r"^step -1 is negative|^'step' is the axis"):
        made.log(step, metrics)
    made.close(TrialStatus.DONE)


def test_the_metrics_file_has_numbers_and_text(tmp_path):
    tracker = jsonl(tmp_path)
    tracker.log(0, {"x": 0.5, "rollout/task_hash": "ff"})
    tracker.close(TrialStatus.DONE)
    assert read_metrics(tmp_path / "metrics.jsonl").rows == (
        {"step": 0, "x": 0.5, "rollout/task_hash": "ff"},
    )
    with pytest.raises(ValueError, match="after close"):
        tracker.log(1, {})


def test_a_metrics_file_that_cannot_be_written_stops_the_trial(tmp_path):
    tracker = jsonl(tmp_path / "missing-folder")
    with pytest.raises(FileNotFoundError):
        tracker.log(0, {"x": 1.0})


@pytest.mark.parametrize("failing", [0, 1])
def test_every_tracker_is_told_in_order_and_closed_even_when_one_fails(failing, tmp_path):
    calls = []
    both = MultiTracker(tuple(Recorder(i, calls, fail_on_close=i == failing) for i in range(2)))
    assert both.shows_media
    made = artifact(tmp_path)
    both.resume([{"step": 0}])
    both.use(made)
    both.log(1, {"x": 1.0})
    both.media(1, MEDIA)
    both.summary({"y": 2.0})
    both.make(made)
    with pytest.raises(OSError, match="disk full"):
        both.close(TrialStatus.DONE)
    said = [
        ("resume", ({"step": 0},)),
        ("use", made),
        ("log", 1, {"x": 1.0}),
        ("media", 1, MEDIA),
        ("summary", {"y": 2.0}),
        ("make", made),
        ("close", TrialStatus.DONE),
    ]
    assert calls == [(name, call) for call in said for name in (0, 1)]


def test_an_interrupted_trial_is_not_held_up_by_wandb(tmp_path, monkeypatch):
    """Ctrl-C belongs to the trial: a tracker must not swallow it."""

    class Stopped:
        def __init__(self):
            self.summary = {}
            self.dir = tmp_path / "files"

        def log(self, values):
            raise KeyboardInterrupt

        def mark_preempting(self):
            pass

        def finish(self, exit_code):
            pass

    monkeypatch.setattr("rltune.track.wandb_tracker._init", lambda run, run_id: Stopped())
    tracker = wandb_offline(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        tracker.log(1, {"x": 1.0})
    tracker.close(TrialStatus.INTERRUPTED)
