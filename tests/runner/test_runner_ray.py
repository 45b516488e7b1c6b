"""One sweep with everything that can go wrong, on real Ray processes, told once and then asserted.

Launch 1: the control ends; one trial crashes; kill -9 hits the driver while the third trains.
Launch 2: one trial at a time: the crashed one is tried again and its worker is killed; the third
goes on; Ctrl-C; the fourth must not start. Launch 3 ends the rest. Launch 4 has nothing to do.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from patience import HANG_S, wait_while_it_runs

from rltune.lineage.table import LineageStore
from rltune.runner.sweep import STOP_FILE
from rltune.runner.trial import run_trial
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.store.digest import metrics_digest
from rltune.store.ledger import Ledger, LedgerState
from rltune.store.provenance import read_provenance
from rltune.store.rundir import RunDir, TrialDir
from rltune.types import RowStatus

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("drive_sweep.py")
STEPS = 80  # far more than a trial makes between two looks at it
GATE_EVERY = 40


@dataclass
class Launch:
    """One run of the driver, and the ledger when it had ended."""

    process: subprocess.Popen[str]
    stdout: str = ""
    stderr: str = ""
    ledger: LedgerState | None = None

    @property
    def outcome(self) -> dict:
        return json.loads(self.stdout)


@dataclass
class Story:
    loaded: LoadedSweep
    run: RunDir
    trials: list[TrialDir]
    launches: list[Launch] = field(default_factory=list)

    def start(self, *, max_concurrent: int) -> Launch:
        runs = self.run.path.parent
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(self.loaded.path), str(runs), str(max_concurrent)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "2"},
            # A test run in the background may have passed on an ignored SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.launches.append(Launch(process))
        return self.launches[-1]

    def end(self, launch: Launch) -> None:
        launch.stdout, launch.stderr = launch.process.communicate(timeout=HANG_S)
        launch.ledger = Ledger(self.run.ledger).read()

    def wait(self, condition: Callable[[], bool]) -> None:
        wait_while_it_runs(self.launches[-1].process, condition)

    def interrupt(self, launch: Launch, number: int, *, training: TrialDir) -> None:
        """Signal the driver; the trial stands still until the stop is asked for."""
        with standing_still(training):
            if number == signal.SIGINT:  # a terminal sends it to the whole group
                os.killpg(launch.process.pid, number)
            else:
                launch.process.send_signal(number)
            self.wait(lambda: any(self.run.tune.glob(f"*/{STOP_FILE}")))

    def last_event(self, trial: TrialDir) -> str | None:
        """What the ledger says last of a trial; the driver writes it after the trial's marker."""
        if not self.run.ledger.exists():
            return None
        found = Ledger(self.run.ledger).read().trials.get(trial.trial_id)
        return found.last.event if found else None

    def has_trained(self, trial: TrialDir, *, attempt: int) -> bool:
        """Whether an attempt has made a few steps of its own."""
        if read_provenance(trial).get("attempt") != attempt or not trial.metrics.is_file():
            return False
        started = trial.provenance.stat().st_mtime
        lines = trial.metrics.read_bytes().splitlines()
        return len(lines) > 6 and trial.metrics.stat().st_mtime > started + 0.2


@contextmanager
def standing_still(trial: TrialDir) -> Iterator[None]:
    """Stop a trial's process for a while, so that it cannot end meanwhile."""
    worker = read_provenance(trial)["pid"]
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


@contextmanager
def begun(loaded: LoadedSweep, runs: Path) -> Iterator[Story]:
    """Give a sweep to drive; a driver that still runs at the end of the block is killed."""
    run = RunDir(runs / loaded.run_name).create()
    trials = [run.trial(spec.trial_id).create() for spec in expand(loaded)]
    story = Story(loaded, run, trials)
    try:
        yield story
    finally:
        for launch in story.launches:
            launch.process.kill()
            launch.process.communicate()


def tell(story: Story) -> None:
    control, crashing, third, _ = story.trials
    crashing.metrics.mkdir()  # nothing can be logged there
    launch = story.start(max_concurrent=2)
    story.wait(lambda: story.has_trained(third, attempt=1))
    with standing_still(third):  # or it would be at its end when the control is
        story.wait(
            lambda: story.last_event(control) == "done" and story.last_event(crashing) == "failed"
        )
        launch.process.send_signal(signal.SIGKILL)
    story.end(launch)

    crashing.metrics.rmdir()
    launch = story.start(max_concurrent=1)
    story.wait(lambda: story.has_trained(crashing, attempt=2))
    os.kill(read_provenance(crashing)["pid"], signal.SIGKILL)
    story.wait(lambda: story.has_trained(third, attempt=2))
    story.interrupt(launch, signal.SIGINT, training=third)
    story.end(launch)

    story.end(story.start(max_concurrent=2))
    story.end(story.start(max_concurrent=2))


@pytest.fixture(scope="module")
def story(write_sweep, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    loaded = load_sweep(write_sweep(steps=STEPS, gate_every=GATE_EVERY, checkpoint_every=4))
    with begun(loaded, tmp_path_factory.mktemp("runs")) as story:
        tell(story)
        yield story


def rows_of(story: Story, trial: TrialDir) -> list[tuple[str, str]]:
    rows = LineageStore.open(story.run.results).read().rows
    return [(row.exp_id, row.status.value) for row in rows if row.trial_id == trial.trial_id]


def test_one_crash_leaves_the_others_running(story):
    state = story.launches[0].ledger
    control, crashing = story.trials[:2]
    assert state.trials[control.trial_id].last.event == "done"
    last = state.trials[crashing.trial_id].last
    assert last.event == "failed"
    assert last.reason.startswith("IsADirectoryError: ")


def test_every_attempt_has_one_row(story):
    control, crashing, third, fourth = story.trials
    name = crashing.trial_id
    first, second, last = rows_of(story, crashing)
    assert first == (name, "preflight_crash")
    assert second == (f"{name}.a2", "crash")
    assert last[0] == f"{name}.a3"
    assert rows_of(story, control) == [(control.trial_id, "baseline")]
    assert [status for _, status in rows_of(story, third)][:2] == ["preempted", "preempted"]
    finished = {rows_of(story, trial)[-1][1] for trial in (crashing, third, fourth)}
    assert finished <= {"keep", "discard"}


def test_a_killed_worker_is_a_crash_with_a_reason_and_the_next_trial_starts(story):
    crashing = story.trials[1]
    failure = json.loads((crashing.path / "FAILED.2").read_text())
    assert failure["kind"] == RowStatus.CRASH
    assert failure["reason"].startswith("its process died: SYSTEM_ERROR: ")
    assert failure["step"] >= 1
    assert story.launches[1].ledger.trials[crashing.trial_id].last.event == "failed"


def test_a_killed_driver_loses_nothing(story):
    third = story.trials[2]
    entries = [json.loads(line) for line in story.run.ledger.read_text().splitlines()]
    mine = [(e["event"], e["attempt"]) for e in entries if e["trial_id"] == third.trial_id]
    assert mine == [
        ("planned", 0),
        ("started", 1),
        ("lost", 1),
        ("started", 2),
        ("interrupted", 2),
        ("started", 3),
        ("done", 3),
    ]


def test_ctrl_c_ends_cleanly_and_starts_nothing_more(story):
    launch = story.launches[1]
    crashing, third, _ = story.trials[1:]
    assert launch.process.returncode == 0
    assert launch.outcome["is_interrupted"]
    assert launch.outcome["statuses"][third.trial_id] == "interrupted"
    # The ledger may name the fourth: launch 1 was killed, and what it began is recorded later.
    assert launch.outcome["begun"] == sorted([crashing.trial_id, third.trial_id])


def test_sigterm_ends_cleanly_and_quietly(write_sweep, tmp_path):
    # Ray's own handler would print a crash report.
    loaded = load_sweep(write_sweep(steps=STEPS, gate_every=GATE_EVERY, checkpoint_every=4))
    with begun(loaded, tmp_path / "runs") as story:
        launch = story.start(max_concurrent=1)
        first = story.trials[0]
        story.wait(lambda: story.has_trained(first, attempt=1))
        story.interrupt(launch, signal.SIGTERM, training=first)
        story.end(launch)
    assert (launch.process.returncode, launch.stderr) == (0, "")
    assert launch.outcome["is_interrupted"]
    assert launch.outcome["statuses"][first.trial_id] == "interrupted"


def test_the_same_command_ends_the_sweep(story):
    outcome = story.launches[2].outcome
    assert set(outcome["statuses"].values()) == {"done"}
    assert not outcome["is_interrupted"]
    assert outcome["ticks"] > 1


def test_a_finished_sweep_starts_no_ray(story):
    outcome = story.launches[3].outcome
    assert set(outcome["statuses"].values()) == {"done"}
    assert (outcome["begun"], outcome["ray"]) == ([], False)


def test_the_terminal_stays_quiet(story):
    for launch in story.launches[1:]:
        assert launch.stderr == ""
        assert len(launch.stdout.splitlines()) == 1
    assert (story.launches[0].stdout, story.launches[0].stderr) == ("", "")


def test_interrupted_trials_end_bit_equal_to_a_whole_one(story, make_payload):
    # Three attempts under Ray, with other thread limits in the driver's environment, against one
    # attempt in this process.
    third = story.trials[2]
    payload = make_payload(story.loaded, condition=2)
    run_trial(replace(payload, manifest=story.run.tasks()))
    whole = TrialDir(payload.folder)
    assert metrics_digest(whole.metrics) == metrics_digest(third.metrics)
    assert whole.heldout.read_bytes() == third.heldout.read_bytes()
    name = "policy.safetensors"
    left, right = (trial.checkpoint(STEPS) / name for trial in (whole, third))
    assert left.read_bytes() == right.read_bytes()
