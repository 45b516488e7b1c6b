import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rltune.errors import ConfoundedError, ResourceError, StoreError
from rltune.lineage.table import LineageStore
from rltune.runner.environment import (
    REFUSED,
    apply_ray_environment,
    make_ray_folder,
    require_resources,
)
from rltune.runner.folder import as_begun, edited_predictions, freeze_all, next_launch
from rltune.runner.interrupts import stop_on_signal
from rltune.runner.sweep import SweepRequest, run_sweep
from rltune.runner.trial import run_trial
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.store.failure import TrialFailure
from rltune.store.files import read_json, write_json_atomic
from rltune.store.ledger import Ledger
from rltune.store.lock import take_driver_lock
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialStatus
from rltune_envs.splits import Manifest


def request_of(loaded, tmp_path: Path, **changes) -> SweepRequest:
    request = SweepRequest(loaded, tmp_path / "runs", None, None, None, ("rltune", "sweep"))
    return replace(request, **changes)


def nothing(*_: object) -> None:
    pass


class EnoughError(Exception):
    """Raised by a test's on_start: the folder is written, and nothing may start."""


def enough(*_: object) -> None:
    raise EnoughError


def prepare(request: SweepRequest, say=nothing) -> RunDir:
    with pytest.raises(EnoughError):
        run_sweep(request, on_start=enough, on_tick=nothing, say=say)
    return RunDir(request.runs_dir.resolve() / request.loaded.run_name)


def test_the_folder_is_whole_before_anything_starts(small, tmp_path):
    run = prepare(request_of(small, tmp_path))
    plan = read_json(run.plan)
    assert [row["trial_id"] for row in plan["trials"]] == [s.trial_id for s in expand(small)]
    assert plan["trials"][0]["is_control"] is True
    assert plan["tasks"] == {"tasks.json": read_json(run.tasks())["sha256"]}
    proof = read_json(run.comparability)
    assert (proof["ok"], proof["allow_confounded"]) == (True, None)
    assert run.sweep.read_text() == small.text
    assert set(Ledger(run.ledger).read().trials) == {spec.trial_id for spec in expand(small)}


def test_a_second_driver_is_refused_and_changes_nothing(small, tmp_path, impatient):
    run = prepare(request_of(small, tmp_path))
    before = run.ledger.read_bytes()
    with (
        take_driver_lock(run.lock, argv=["first"]),
        pytest.raises(StoreError, match=r"driver\.lock: this sweep is already driven by process"),
    ):
        run_sweep(request_of(small, tmp_path), on_start=nothing, on_tick=nothing)
    assert run.ledger.read_bytes() == before


def test_an_edited_task_manifest_is_refused(small, tmp_path):
    run = prepare(request_of(small, tmp_path))
    run.tasks().write_text(run.tasks().read_text().replace('"n_duplicates": ', '"n_duplicates": 1'))
    with pytest.raises(StoreError, match=r"tasks\.json: the task manifest does not match"):
        run_sweep(request_of(small, tmp_path), on_start=nothing, on_tick=nothing)


def test_a_prediction_that_is_edited_counts_for_trials_that_have_not_begun(small, tmp_path):
    """Somebody saw what came, and wrote it down as expected before the row was written."""

    def expecting(text: str) -> LoadedSweep:
        control, *others = small.conditions
        return replace(
            small, conditions=(control, *(replace(c, expected_delta=text) for c in others))
        )

    run = prepare(request_of(expecting("-0.05"), tmp_path))
    _, began, waits, *_ = expand(expecting("-0.05"))
    trial = run.trial(began.trial_id).create()
    trial.write_spec(began)
    trial.write_failed(TrialFailure(RowStatus.CRASH, "because", "", 4, 1))
    edited = expand(expecting("+0.4"))
    kept = as_begun(run, edited)
    told = {spec.trial_id: spec.expected_delta for spec in kept}
    assert (told[began.trial_id], told[waits.trial_id]) == ("-0.05", "+0.4")
    (line,) = edited_predictions(edited, kept)
    assert line == (
        f"{began.condition}: what is expected was edited to '+0.4' after trials began; "
        f"seed {began.seed} keeps '-0.05'"
    )
    same = expand(expecting("-0.05"))[:2]
    assert not edited_predictions(same, as_begun(run, same))
    said: list[str] = []
    prepare(request_of(expecting("+0.4"), tmp_path), said.append)
    assert said == [line]
    (row,) = LineageStore.open(run.results).read().rows
    assert (row.exp_id, row.expected_delta) == (began.trial_id, "-0.05")


def test_tasks_of_another_plan_are_refused(small, tmp_path):
    # Whole in themselves, but not the tasks that the earlier trials were measured on.
    run = prepare(request_of(small, tmp_path))
    other = RunDir(tmp_path / "other").create()
    spec = expand(small)[0]
    config = {**spec.config, "env": {**spec.config["env"], "split_seed": 1}}
    freeze_all(other, [replace(spec, config=config)])
    run.tasks().write_bytes(other.tasks().read_bytes())
    with pytest.raises(StoreError, match=r"tasks\.json: holds other tasks"):
        run_sweep(request_of(small, tmp_path), on_start=nothing, on_tick=nothing)


def test_tasks_that_are_trained_on_and_held_out_are_refused(small, tmp_path):
    run = RunDir(tmp_path / "run").create()
    specs = expand(small)
    freeze_all(run, specs)
    manifest = Manifest.from_json(read_json(run.tasks()))
    leaky = replace(manifest, heldout=(*manifest.heldout[:-1], manifest.train[0]))
    write_json_atomic(run.tasks(), leaky.to_json())
    with pytest.raises(StoreError, match=r"tasks\.json: 1 tasks are both in train and in heldout"):
        freeze_all(run, specs)


def test_each_env_section_has_its_own_tasks(small, tmp_path):
    run = RunDir(tmp_path / "run").create()
    one, other = expand(small)[:2]
    config = {**other.config, "env": {**other.config["env"], "search_depth": 10}}
    frozen = freeze_all(run, [one, replace(other, config=config)])
    paths = {tasks.path.name for tasks in frozen.values()}
    assert len(paths) == 2
    assert all(name.startswith("tasks-") for name in paths)


def test_a_confounded_sweep_starts_nothing(write_sweep, tmp_path):
    text = write_sweep()
    broken = text.with_name("broken.yaml")
    broken.write_text(text.read_text().replace("  loss.entropy_coeff: 0.0\n", ""))
    loaded = load_sweep(broken)
    with pytest.raises(ConfoundedError, match=r"broken\.yaml: S3: Not held: loss\.entropy_coeff"):
        run_sweep(request_of(loaded, tmp_path), on_start=nothing, on_tick=nothing)
    assert not (tmp_path / "runs").exists()


def test_a_confounded_sweep_runs_with_a_reason_and_says_so(write_sweep, tmp_path, make_payload):
    text = write_sweep()
    broken = text.with_name("broken.yaml")
    broken.write_text(text.read_text().replace("  loss.entropy_coeff: 0.0\n", ""))
    loaded = load_sweep(broken)
    request = request_of(loaded, tmp_path, allow_confounded="a look")
    run = prepare(request)
    proof = read_json(run.comparability)
    assert (proof["ok"], proof["allow_confounded"]) == (False, "a look")
    payload = make_payload(loaded)
    run_trial(replace(payload, folder=run.trial(payload.spec.trial_id).path))
    prepare(request)
    (line,) = run.results.read_text().splitlines()[1:]
    assert "\tdisqualified\t" in line
    assert "a look" in line


def test_a_finished_sweep_returns_without_ray(small, tmp_path, make_payload):
    loaded = replace(small, conditions=small.conditions[:2])
    request = request_of(loaded, tmp_path)
    run = prepare(request)
    payload = make_payload(loaded)
    run_trial(replace(payload, folder=run.trial(payload.spec.trial_id).path))
    # A diverged trial has ended, too: on the same code it diverges again.
    diverged = run.trial(expand(loaded)[1].trial_id).create()
    diverged.write_failed(TrialFailure(RowStatus.DIVERGED, "loss is nan", "", 1, 1))
    had_ray = "ray" in sys.modules
    outcome = run_sweep(request, on_start=nothing, on_tick=nothing)
    assert list(outcome.statuses.values()) == [TrialStatus.DONE, TrialStatus.DIVERGED]
    assert (len(outcome.begun), outcome.is_interrupted) == (0, False)
    assert ("ray" in sys.modules) == had_ray
    assert len(run.results.read_text().splitlines()) == 1 + 2


def test_no_trial_at_a_time_is_refused(small, tmp_path):
    with pytest.raises(ResourceError, match=r"^--max-concurrent: 0 trials at a time"):
        run_sweep(request_of(small, tmp_path, max_concurrent=0), on_start=nothing, on_tick=nothing)


@pytest.mark.slow
def test_importing_the_runner_imports_neither_torch_nor_ray():
    program = "import sys, rltune.runner.sweep; print({'torch', 'ray'} & set(sys.modules))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True)
    assert done.stdout.strip() == b"set()"


def test_launches_are_counted(tmp_path):
    run = RunDir(tmp_path)
    assert next_launch(run) == "launch-0001"
    (run.tune / "launch-0009").mkdir(parents=True)
    (run.tune / "other").mkdir()
    assert next_launch(run) == "launch-0010"


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        (
            {"CPU": 4.0},
            r"^resources\.cpus: a trial requests 4 CPUs, but the largest machine has 2\.",
        ),
        ({"CPU": 1.0, "GPU": 1.0}, r"^resources\.gpus: a trial requests 1 GPUs, .* --set "),
        (
            {"CPU": 1.0, "GPU": 2.0},
            r"^resources\.gpus: a trial requests 2 GPUs, .* --set resources\.engine=shared, or ",
        ),
    ],
)
def test_trials_that_fit_nowhere_are_refused(needs, message):
    # Two machines of two cores hold no trial of four.
    with pytest.raises(ResourceError, match=message):
        require_resources([{"CPU": 1.0}, needs], [{"CPU": 2.0}, {"CPU": 2.0}])


def test_cores_and_gpus_must_be_on_one_machine():
    nodes = [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}]
    require_resources([{"CPU": 1.0, "GPU": 1.0}, {"CPU": 8.0}], nodes)
    with pytest.raises(ResourceError, match=r"no machine has 2 CPUs and 1 GPUs at the same time"):
        require_resources([{"CPU": 2.0, "GPU": 1.0}], nodes)


@pytest.mark.parametrize("name", REFUSED)
def test_variables_that_ray_refuses_are_named_before_it_starts(monkeypatch, name):
    monkeypatch.setenv(name, "/tmp/x")
    with pytest.raises(ResourceError, match=f"^environment: {name}: "):
        apply_ray_environment(None)


def test_where_ray_cannot_start_nothing_is_left(small, tmp_path, monkeypatch):
    monkeypatch.setattr("rltune.runner.machine._SYSTEM", ())
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    with pytest.raises(
        ResourceError, match=r"^environment: TMPDIR: .* Set RAY_TMPDIR to a writable folder"
    ):
        run_sweep(request_of(small, tmp_path), on_start=nothing, on_tick=nothing)
    assert not (tmp_path / "runs").exists()
    assert list(long.iterdir()) == []


def test_a_second_ctrl_c_leaves_no_folder_of_ray(small, tmp_path, monkeypatch, models_are_fine):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    made = []

    def run(session, on_tick, *, tick_s):
        launch = tmp_path / "runs" / small.run_name / "tune" / "launch-0001"
        made.append(make_ray_folder(launch))
        raise KeyboardInterrupt

    monkeypatch.setattr("rltune.runner.sweep.LaunchSession.run", run)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(request_of(small, tmp_path), on_start=nothing, on_tick=nothing)
    assert [folder.exists() for folder in made] == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_ends(number):
    before = signal.getsignal(number)
    asked = []
    with stop_on_signal(lambda: asked.append(1)):
        signal.raise_signal(number)
        assert asked == [1]
        with pytest.raises(KeyboardInterrupt, match="second signal"):
            signal.raise_signal(number)
    assert asked == [1]
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal(nothing):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_no_handler_is_installed():
    seen = []

    def enter() -> None:
        with stop_on_signal(nothing):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
