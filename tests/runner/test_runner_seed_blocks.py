"""Seeds until decided, driven by launches that end each trial with a number of the test."""

import shutil
from dataclasses import replace

import pytest
from test_runner_sweep import nothing, request_of

from rltune.analysis.audit import judge_folder
from rltune.analysis.ends import end_of
from rltune.analysis.seed_blocks import due_trials, take_looks
from rltune.analysis.verdict import between, verdicts
from rltune.comparability.check import check_sweep
from rltune.errors import ResourceError, StoreError
from rltune.runner.launch_session import LaunchSession
from rltune.runner.sweep import run_sweep
from rltune.spec.expand import until_decided
from rltune.store.failure import TrialFailure
from rltune.store.files import read_json, write_json_atomic
from rltune.store.looks import read_looks
from rltune.store.run_folder import read_folder, read_records
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, SeedPlan, TrialResult, TrialStatus

FAR, NEAR, NOISY = "kl_loss_coef=0.01", "kl_loss_coef=0.1", "kl_loss_coef=0.03"
CONTROL = "kl_loss_coef=0.0"
LUCK = (0.001, -0.001, 0.002, -0.002, 0.0005, -0.0015)


def value_of(condition, seed):
    """Far from the control, as good as it, or as noisy as it is far."""
    wild = 0.3 if seed % 2 else -0.2
    shift = {CONTROL: 0.0, FAR: 0.5, NEAR: 0.001, NOISY: wild}[condition]
    return 0.3 * (seed % 3) + shift + (0.0 if condition == CONTROL else LUCK[seed])


class Kill(BaseException):
    """The driver is gone."""


def driver(small, folder, patch):
    """Return what runs the small sweep until decided; what started is in its `started`."""
    loaded = until_decided(small, most=6, effect=0.05)
    fails: set[tuple[str, int]] = set()
    started: list[tuple[str, int]] = []
    kill_after: list[int] = []

    def run(session, on_tick, *, tick_s):
        for payload in session._payloads.values():
            if kill_after and len(started) >= kill_after[0]:
                raise Kill
            spec = payload.spec
            started.append((spec.condition, spec.seed))
            trial = session._recorder.run.trial(spec.trial_id).create()
            trial.write_spec(spec)
            write_json_atomic(trial.provenance, {"attempt": payload.attempt})
            if (spec.condition, spec.seed) in fails:
                trial.clear_failed()
                failure = TrialFailure(RowStatus.CRASH, "it broke", "", 0, payload.attempt)
                trial.write_failed(failure)
                continue
            number = value_of(spec.condition, spec.seed)
            result = TrialResult(
                spec.trial_id, TrialStatus.DONE, "", 2, 0, number, 0.1, number, 0.0, "", 1.0, 1.0
            )
            trial.write_done(result)
        return False

    patch.setattr(LaunchSession, "run", run)
    patch.setattr("rltune.runner.sweep.require_models", nothing)

    def call(given=loaded, **changes):
        request = request_of(given, folder, proof=check_sweep(given), **changes)
        return run_sweep(request, on_start=nothing, on_tick=nothing, say=call.said.append)

    call.said, call.started, call.fails, call.kill_after = [], started, fails, kill_after
    call.run = RunDir((folder / "runs" / loaded.run_name).resolve())
    call.loaded = loaded
    return call


@pytest.fixture
def drive(small, tmp_path, monkeypatch):
    return driver(small, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def decided(small, tmp_path_factory):
    """Return a driver that has decided all; for tests that change nothing of it."""
    with pytest.MonkeyPatch.context() as patch:
        drive = driver(small, tmp_path_factory.mktemp("decided"), patch)
        drive.outcome = drive()
    return drive


def looks_of(run):
    return [
        (look.condition, look.planned, tuple(look.seeds), look.decision)
        for look in read_looks(run.looks)
    ]


def words_of(run):
    folder = read_folder(run)
    ends = [end_of(record) for record in read_records(folder).records]
    return {one.condition: one.word for one in verdicts(ends, resolution=0.0)}


def seeds_of(started, condition):
    return [seed for label, seed in started if label == condition]


def test_decided_conditions_get_no_more_seeds_and_the_control_goes_on(decided):
    drive, outcome = decided, decided.outcome
    assert seeds_of(drive.started, CONTROL) == [0, 1, 2, 3, 4, 5]
    assert seeds_of(drive.started, NOISY) == [0, 1, 2, 3, 4, 5]
    assert seeds_of(drive.started, FAR) == [0, 1, 2]
    assert seeds_of(drive.started, NEAR) == [0, 1, 2, 3]
    assert words_of(drive.run) == {
        FAR: "above", NEAR: "practically equal", NOISY: "not separable"
    }  # fmt: skip
    planned = read_json(drive.run.plan)
    assert planned["until"] == {"start": 3, "most": 6, "block": 1, "effect": 0.05}
    assert len(planned["trials"]) == len(drive.started) == len(outcome.specs)
    assert any(f"{FAR}: look at 3 of at most 6 seeds" in text for text in drive.said)


def test_a_comparison_that_begins_with_the_control_says_the_order(decided):
    ends = [end_of(record) for record in read_records(read_folder(decided.run)).records]
    word = between(CONTROL, FAR, ends, resolution=0.0).word
    assert word == f"no verdict (seeds until decided: give {FAR} first, the control second)"
    word = between(NOISY, FAR, ends, resolution=0.0).word
    assert word.endswith("each condition is tested against the control)")
    assert between(FAR, CONTROL, ends, resolution=0.0).word == "above"


def test_nothing_is_left_once_all_is_decided(drive):
    drive()
    before, looks = len(drive.started), drive.run.looks.read_bytes()
    outcome = drive()
    assert len(drive.started) == before
    assert drive.run.looks.read_bytes() == looks
    assert all(status.is_finished for status in outcome.statuses.values())


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 12, 14, 17])
def test_a_killed_driver_is_followed_by_the_same_looks(drive, after):
    drive.kill_after.append(after)
    with pytest.raises(Kill):
        drive()
    drive.kill_after.clear()
    drive()
    killed = looks_of(drive.run), words_of(drive.run)
    drive.run.looks.unlink()
    drive.run.plan.unlink()
    for trial in drive.run.trial_dirs():
        trial.done.unlink()
        trial.provenance.unlink()
    drive()
    assert (looks_of(drive.run), words_of(drive.run)) == killed


def test_a_driver_killed_before_its_look_takes_it_later(drive, monkeypatch):
    monkeypatch.setattr("rltune.runner.sweep.take_looks", lambda *_, **__: ())
    drive()
    assert looks_of(drive.run) == []
    assert set(words_of(drive.run).values()) == {"no verdict (no look yet)"}
    monkeypatch.setattr("rltune.runner.sweep.take_looks", take_looks)
    drive()
    assert words_of(drive.run)[FAR] == "above"


def test_where_ray_cannot_start_a_later_block_is_refused_before_anything_is_written(
    drive, monkeypatch
):
    monkeypatch.setattr("rltune.runner.sweep.take_looks", lambda *_, **__: ())
    drive()
    monkeypatch.setattr("rltune.runner.sweep.take_looks", take_looks)
    monkeypatch.setenv("TUNE_RESULT_DIR", "/tmp/x")
    plan, started = drive.run.plan.read_bytes(), len(drive.started)
    with pytest.raises(ResourceError, match=r"^environment: TUNE_RESULT_DIR: "):
        drive()
    assert (drive.run.plan.read_bytes(), len(drive.started)) == (plan, started)
    monkeypatch.delenv("TUNE_RESULT_DIR")
    drive()
    assert words_of(drive.run)[FAR] == "above"


def test_a_failed_trial_is_no_data_and_blocks_nobody(drive):
    drive.fails.add((FAR, 1))
    drive()
    first = looks_of(drive.run)[0]
    assert first == (FAR, 3, (0, 2), "go on")  # two pairs are no look
    assert words_of(drive.run)[FAR] == "above"
    assert drive.started.count((FAR, 1)) == 1  # not again in the same command
    drive()
    assert drive.started.count((FAR, 1)) == 1  # nor once the condition is decided


def test_a_failed_trial_that_ends_later_is_counted_from_then_on(drive):
    drive.fails.add((NOISY, 1))
    drive(max_trials=12)
    drive.fails.clear()
    drive()
    looks = [look for look in looks_of(drive.run) if look[0] == NOISY]
    assert looks[0][2] == (0, 2)
    assert looks[1][2] == (0, 1, 2, 3)
    assert words_of(drive.run)[NOISY] == "not separable"


def test_a_failed_control_costs_its_seed_alone(drive):
    drive.fails.add((CONTROL, 0))
    drive()
    assert looks_of(drive.run)[0][2] == (1, 2)
    assert words_of(drive.run)[FAR] == "above"


@pytest.mark.slow
def test_one_trial_a_night_comes_to_the_same(drive):
    for _ in range(40):
        drive(max_trials=1)
    nights = looks_of(drive.run)
    assert words_of(drive.run)[FAR] == "above"
    assert len(nights) == len(set(nights))
    assert len(drive.started) == len(set(drive.started))


def test_looks_that_have_begun_cannot_be_planned_otherwise(drive, small):
    drive(max_trials=12)
    for other in (small, until_decided(small, most=8), replace(drive.loaded, until=SeedPlan(3, 6))):
        with pytest.raises(StoreError, match="its looks are planned as 3 to 6 seeds by 1, effect"):
            drive(other)


def test_looks_that_have_begun_count_no_other_seeds(drive, small):
    drive(max_trials=12)
    other = until_decided(replace(small, seeds=(7, 8, 9)), most=6, effect=0.05)
    assert other.until == drive.loaded.until
    with pytest.raises(StoreError, match="counted seeds 0, 1, 2, and seeds 7, 8, 9 "):
        drive(other)


def test_a_list_of_seeds_has_no_looks(small, drive):
    drive(small)
    assert not drive.run.looks.exists()
    assert read_json(drive.run.plan)["until"] is None
    assert len(due_trials(drive.run, small).specs) == 4


def audit_of(run):
    folder = read_folder(run)
    found = judge_folder(folder, read_records(folder)).report.errors
    return [item.message for item in found if "look" in item.message]


def test_the_audit_finds_a_removed_seed_and_an_altered_look(decided, tmp_path):
    run = RunDir(shutil.copytree(decided.run.path, tmp_path / "run", symlinks=True))
    assert audit_of(run) == []
    text = run.looks.read_text()
    run.looks.write_text(text.replace('"decision": "different"', '"decision": "go on"'))
    assert any("recorded go on" in message for message in audit_of(run))
    run.looks.write_text(text)
    gone = next(d for d in run.trial_dirs() if d.trial_id.startswith(f"{NOISY}-s5"))
    gone.done.unlink()
    (message, *_) = audit_of(run)
    assert "counted seed 5, which has no result beside the control's now." in message
    plan = read_json(run.plan)
    plan["trials"] = [row for row in plan["trials"] if row["trial_id"] != gone.trial_id]
    write_json_atomic(run.plan, plan)
    gone.spec.unlink()
    assert any("has 5 trials, and a look was planned at 6" in m for m in audit_of(run))
