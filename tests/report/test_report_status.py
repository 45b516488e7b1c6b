import io
from dataclasses import replace

import pytest
from goldens import assert_golden, drawn, masked
from rich.console import Console
from run_folders import CONTROL, START, TREATED, FolderWriter, finished_sweep

from rltune.report.folder import read_folder
from rltune.report.live import LiveProgress, PlainProgress, events, live_view
from rltune.report.render_status import status_view
from rltune.report.status import StatusReader, read_state
from rltune.store.cleaning import size_of
from rltune.store.failure import TrialFailure
from rltune.store.files import write_json_atomic
from rltune.store.lock import take_driver_lock
from rltune.types import RowStatus, TrialStatus

NOW = START + 25.0
CRASH = TrialFailure(RowStatus.CRASH, "RuntimeError: out of memory (rltune/x.py:3)", "", 7, 1)


@pytest.fixture
def mixed(tmp_path):
    """Done, failed, running, and never started."""
    writer = FolderWriter(tmp_path)
    writer.finish(writer.spec(CONTROL, 0), {0: 4, 10: 5, 20: 6})
    writer.fail(writer.spec(TREATED, 0), CRASH)
    writer.train(writer.spec(CONTROL, 1), {0: 4, 10: 5}, steps=10)
    return writer


def states(state):
    return {(trial.condition, trial.seed): trial for trial in state.trials}


def test_state_of_every_trial(mixed):
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        state = read_state(read_folder(mixed.run), now=NOW)
    found = states(state)
    assert [trial.status for trial in state.trials] == [
        TrialStatus.DONE,
        TrialStatus.FAILED,
        TrialStatus.RUNNING,
        TrialStatus.PENDING,
        TrialStatus.PENDING,
        TrialStatus.PENDING,
    ]
    running = found[CONTROL, 1]
    assert (running.step, running.steps, running.base, running.last) == (10, 20, 0.4, 0.5)
    assert running.step_s == 2.0
    assert running.eta_s == 20.0  # ten steps of two seconds
    assert running.silent_s == 5.0  # the last line came at 20 s
    assert found[TREATED, 0].reason == CRASH.reason
    assert found[CONTROL, 0].best_step == 20
    assert state.has_failed
    # ten steps of the running trial and twenty of three others, one at a time: 70 x 2 s
    assert state.eta_s == 140.0


def test_without_a_driver_nothing_runs(mixed):
    """A killed sweep leaves the same trial files as a running one; its lock tells them apart."""
    state = read_state(read_folder(mixed.run), now=NOW)
    trial = states(state)[CONTROL, 1]
    assert state.driver is None
    assert trial.status is TrialStatus.INTERRUPTED
    assert trial.reason == "its driver is gone; the same command goes on"
    assert trial.eta_s is None


def test_seeds_of_an_earlier_launch_are_shown(tmp_path):
    first = FolderWriter(tmp_path, seeds=(7,))
    first.finish(first.spec(CONTROL, 7), {0: 4, 10: 5, 20: 6})
    second = FolderWriter(tmp_path, seeds=(0,))
    assert first.run == second.run  # the run folder does not depend on the seeds
    found = [(trial.condition, trial.seed) for trial in read_state(read_folder(second.run)).trials]
    assert found == [(CONTROL, 0), (TREATED, 0), (CONTROL, 7)]


@pytest.mark.parametrize("width", [80, 120])
def test_status_text(mixed, width):
    state = read_state(read_folder(mixed.run), now=NOW)
    assert state.size_bytes == size_of(mixed.run.path) > 0
    state = replace(state, size_bytes=183_000)  # depends on the file system's blocks
    text = masked(drawn(status_view(state), width), mixed.root)
    assert_golden(f"status_{width}", text)


def test_events_tell_gates_and_changes_once(mixed):
    spec = mixed.spec(CONTROL, 1)
    reader = StatusReader(read_folder(mixed.run))
    said = []
    progress = PlainProgress(said.append, lambda: "12:00:00")
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        progress.show(reader.read(now=NOW))
        assert said == ["12:00:00 kl_loss_coef=0.0, seed 1: goes on at step 10/20"]
        progress.show(reader.read(now=NOW))
        assert len(said) == 1  # nothing is new
        mixed.run.trial(spec.trial_id).metrics.unlink()
        mixed.finish(spec, {0: 4, 10: 5, 20: 7})
        progress.show(reader.read(now=NOW))
        mixed.fail(mixed.spec(TREATED, 1), CRASH)
        progress.show(reader.read(now=NOW))
    log = mixed.run.trial(mixed.spec(TREATED, 1).trial_id).log
    assert said[1:] == [
        "12:00:00 kl_loss_coef=0.0, seed 1: step 20/20, held-out 0.700 (start 0.400), 160 tokens/s",
        "12:00:00 kl_loss_coef=0.0, seed 1: done, held-out 0.400 -> 0.700, best gate at step 20",
        "12:00:00 kl_loss_coef=0.1, seed 1: FAILED at step 7/20: "
        f"RuntimeError: out of memory (rltune/x.py:3); log: {log}",
    ]


def test_first_state_does_not_tell_old_news(mixed):
    assert list(events(None, read_state(read_folder(mixed.run), now=NOW))) == []


def test_live_table_of_a_low_terminal_shows_what_runs(mixed):
    with take_driver_lock(mixed.run.lock, argv=["rltune"]):
        state = read_state(read_folder(mixed.run), now=NOW)
    text = drawn(live_view(state, height=6), 80)
    assert "running" in text.splitlines()[1]
    assert "(5 more: `rltune status`)" in " ".join(text.split())
    assert "failed" not in "\n".join(text.splitlines()[:2])


def test_live_display_keeps_ends_and_failures_above_the_table(mixed):
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=30)
    reader = StatusReader(read_folder(mixed.run))
    with take_driver_lock(mixed.run.lock, argv=["rltune"]), LiveProgress(console) as live:
        live.show(reader.read(now=NOW))
        mixed.fail(mixed.spec(TREATED, 1), CRASH)
        mixed.finish(mixed.spec(TREATED, 2), {0: 4, 10: 5, 20: 7})
        live.show(reader.read(now=NOW))
        live.show(reader.read(now=NOW))
    text = console.file.getvalue()
    assert text.count("kl_loss_coef=0.1, seed 1: RuntimeError") == 1
    assert text.count("kl_loss_coef=0.1, seed 2: done, held-out 0.400 -> 0.700") == 1
    assert "seed 0: done" not in text  # it had ended before
    assert text.count("about") >= 2  # the table was drawn with what is left


def test_a_warning_of_a_card_is_told(tmp_path):
    writer = finished_sweep(tmp_path)
    spec = writer.spec(TREATED, 1)
    write_json_atomic(writer.run.trial(spec.trial_id).card, {"warnings": ["inversion: it is"]})
    state = read_state(read_folder(writer.run))
    (warned,) = [trial for trial in state.trials if trial.warnings]
    assert (warned.trial_id, warned.warnings) == (spec.trial_id, ("inversion: it is",))
    assert f"warning: {TREATED}, seed 1: inversion: it is" in drawn(status_view(state), 120)
    writer.run.trial(spec.trial_id).card.write_text("{")  # torn: only the warning is lost
    assert not any(trial.warnings for trial in read_state(read_folder(writer.run)).trials)
