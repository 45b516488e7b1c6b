"""`rltune sweep` around a runner that only writes files."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from goldens import assert_golden, masked
from run_folders import CONTROL, SWEEP, TREATED, FolderWriter, write_sweep

from rltune.cli.sweep import Watcher
from rltune.comparability.check import check_sweep
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.runner import sweep as runner
from rltune.runner.folder import FrozenTasks, write_folder
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.store.failure import TrialFailure
from rltune.store.files import read_json
from rltune.store.lock import take_driver_lock
from rltune.store.rundir import RunDir
from rltune.types import RowStatus

CRASH = TrialFailure(RowStatus.CRASH, "RuntimeError: out of memory (rltune/x.py:3)", "", 7, 1)
GATES = {0: 4, 10: 5, 20: 6}


@dataclass
class FakeRunner:
    """Stands in for run_sweep: writes a run folder, one act a tick."""

    root: object
    acts: list[Callable[[FolderWriter], None]]
    interrupted: bool = False
    said: tuple[str, ...] = ()
    requests: list[runner.SweepRequest] = field(default_factory=list)

    def __call__(self, request, *, on_start, on_tick, say, tick_s=1.0):
        self.requests.append(request)
        for text in self.said:
            say(text)
        writer = FolderWriter(self.root, request.loaded.text, seeds=request.loaded.seeds)
        with take_driver_lock(writer.run.lock, argv=["rltune"]):
            on_start(writer.run, writer.specs)
            for act in self.acts:
                act(writer)
                on_tick()
        return runner.SweepOutcome(
            run=writer.run,
            specs=writer.specs,
            statuses={},
            begun=frozenset(spec.trial_id for spec in writer.specs[: len(self.acts)]),
            is_interrupted=self.interrupted,
        )


@pytest.fixture
def run_with(rltune, tmp_path, monkeypatch):
    """Run `rltune sweep` with the acts of a fake runner."""
    write_sweep(tmp_path)

    def call(*acts, arguments=(), interrupted=False, said=()):
        fake = FakeRunner(tmp_path, list(acts), interrupted, said)
        monkeypatch.setattr("rltune.cli.sweep.run_sweep", fake)
        monkeypatch.setattr("rltune.cli.sweep.clock", lambda: "12:00:00")
        return rltune("sweep", "sweeps/kl.yaml", *arguments), fake

    return call


def finish(label: str, seed: int) -> Callable[[FolderWriter], None]:
    return lambda writer: writer.finish(writer.spec(label, seed), GATES)


def test_proof_progress_closing_paths_verdict_in_order(run_with):
    result, fake = run_with(
        finish(CONTROL, 0), finish(TREATED, 0), arguments=("--seeds", "0", "--max-concurrent", "2")
    )
    assert result.code == 0
    assert result.err == ""
    assert_golden("sweep_80", masked(result.out))
    assert fake.requests[0].max_concurrent == 2
    marks = ["Comparable:", "Run folder", "12:00:00", "random floor", "Written", "Audit passed"]
    places = [result.out.index(mark) for mark in marks]
    assert places == sorted(places)


def test_what_the_runner_says_is_a_line_with_the_time(run_with):
    result, _ = run_with(finish(CONTROL, 0), arguments=("--seeds", "0"), said=("it goes on",))
    assert "12:00:00 it goes on" in result.out.splitlines()


def test_a_failure_is_told_at_once_and_again_at_the_end(run_with, tmp_path):
    result, _ = run_with(
        lambda writer: writer.fail(writer.spec(TREATED, 0), CRASH),
        finish(CONTROL, 0),
        arguments=("--seeds", "0"),
    )
    assert result.code == 1
    lines = result.out.splitlines()
    told = [line for line in lines if "FAILED" in line]
    assert told[0].startswith("12:00:00 kl_loss_coef=0.1, seed 0: FAILED at step 7/20: Runtime")
    assert told[0].endswith("trial.log")
    assert lines.index(told[0]) < next(i for i, line in enumerate(lines) if ": done" in line)
    assert len(told) == 2


def test_a_failed_audit_is_code_1_and_takes_the_claim_away(run_with):
    def on_another_commit(writer):
        writer.start(writer.spec(TREATED, 2), commit="beef")

    acts = [finish(label, seed) for seed in (0, 1, 2) for label in (CONTROL, TREATED)]
    sound, _ = run_with(*acts)
    assert sound.code == 0
    assert f"{TREATED}: not separable from the control (n = 3" in sound.out
    result, _ = run_with(on_another_commit)
    assert result.code == 1
    assert "No claim is made: the audit found errors (A1)." in result.out
    assert "separable" not in result.out
    assert result.out.index("No claim is made") < result.out.index("Audit FAILED")


def record(label: str, seed: int, launch: str = "launch-0001") -> Callable[[FolderWriter], None]:
    def act(writer: FolderWriter) -> None:
        finish(label, seed)(writer)
        spec = writer.spec(label, seed)
        row = LineageRow(
            exp_id=spec.trial_id, status=RowStatus.KEEP, core_metric=0.5, job_name=launch,
            metric_name="heldout/success_rate", metric_mode="max",
        )  # fmt: skip
        LineageStore(writer.run.results, "heldout/success_rate", "max").append(row)

    return act


def test_what_was_learned_is_rendered_at_the_end_and_kept_as_it_was_shown(run_with, tmp_path):
    first, _ = run_with(record(CONTROL, 0), arguments=("--seeds", "0"))
    assert "  what was learned  runs/" in first.out
    (run,) = (tmp_path / "runs").iterdir()
    shown = (run / "LEADERBOARD.md").read_text() + "\n" + (run / "KNOWLEDGE.md").read_text()
    snapshots = run / "lineage_snapshots"
    assert (snapshots / "launch-0001.md").read_text() == shown
    run_with(record(TREATED, 0, "launch-0002"), arguments=("--seeds", "0"))
    assert (snapshots / "launch-0001.md").read_text() == shown
    assert (snapshots / "launch-0002.md").read_text() != shown


def test_a_lineage_that_cannot_be_rendered_does_not_fail_the_sweep(run_with):
    def spoil(writer: FolderWriter) -> None:
        writer.run.results.write_text("foo\tbar\n")

    result, _ = run_with(finish(CONTROL, 0), spoil, arguments=("--seeds", "0"))
    assert result.code == 0
    assert "warning: the lineage was not rendered: " in result.err


def test_a_shared_table_is_asked_for_by_name(run_with, tmp_path):
    _, fake = run_with(arguments=("--lineage", "nights.tsv"))
    assert fake.requests[0].lineage == Path("nights.tsv")


def test_offline_runs_of_wandb_are_named(run_with):
    def mirror(writer):
        trial = writer.run.trial(writer.spec(CONTROL, 0).trial_id)
        (trial.path / "wandb" / "offline-run-20260131_120000-x").mkdir(parents=True)

    without, _ = run_with(finish(CONTROL, 0), finish(TREATED, 0), arguments=("--seeds", "0"))
    assert "rltune sync" not in without.out
    result, _ = run_with(mirror, arguments=("--seeds", "0"))
    assert re.search(r"to W&B when you like: rltune sync \S+/kl-", result.out)


def test_interrupted_is_code_3(run_with):
    result, _ = run_with(
        lambda writer: writer.train(writer.spec(CONTROL, 0), {0: 4}, steps=3), interrupted=True
    )
    assert result.code == 3
    assert result.err == "interrupted; run the same command to resume.\n"


def test_nothing_left_to_run_says_so(run_with, tmp_path):
    writer = FolderWriter(tmp_path)
    for spec in writer.specs:
        writer.finish(spec, GATES)
    result, _ = run_with()
    assert result.code == 0
    assert "Nothing was left to run: every trial has already finished." in result.out
    assert "6 trials: 6 done" in result.out


def test_plan_shows_what_the_runner_writes(rltune, tmp_path):
    """Case of `plan --json`: the runner's own plan.json, task digests aside, and the cost."""
    write_sweep(tmp_path)
    data = json.loads(rltune("plan", "sweeps/kl.yaml", "--json").out)
    loaded = load_sweep("sweeps/kl.yaml")
    specs = expand(loaded)
    frozen = FrozenTasks(tmp_path / "tasks.json", "0" * 64)
    run = RunDir(tmp_path / "run").create()
    tasks = {spec.trial_id: frozen for spec in specs}
    write_folder(run, loaded, check_sweep(loaded), specs, tasks, allowed=None)
    assert data.pop("cost")["trials"].keys() == tasks.keys()
    assert data == {**read_json(run.plan), "tasks": None}


def test_dry_run_starts_nothing(run_with, tmp_path):
    result, fake = run_with(arguments=("--dry-run",))
    assert result.code == 0
    assert fake.requests == []
    assert result.out.endswith("Nothing was started (--dry-run).\n")
    assert not (tmp_path / "runs").exists()


def test_a_confounded_sweep_is_refused(run_with, tmp_path):
    write_sweep(tmp_path, SWEEP.replace("  loss.entropy_coeff: 0.0\n", ""))
    result, fake = run_with()
    assert result.code == 2
    assert fake.requests == []
    assert result.err == (
        "error: sweeps/kl.yaml: S3: Not held: loss.entropy_coeff (an entropy bonus flattens the "
        "policy whatever the reward says). Write under hold: loss.entropy_coeff: 0.0.\n"
    )


def test_a_confounded_sweep_runs_with_a_reason(run_with, tmp_path):
    write_sweep(tmp_path, SWEEP.replace("  loss.entropy_coeff: 0.0\n", ""))
    result, fake = run_with(arguments=("--allow-confounded", "to see it"))
    assert fake.requests[0].allow_confounded == "to see it"
    assert "Running anyway, with every row disqualified: to see it" in result.out
    blank, _ = run_with(arguments=("--allow-confounded", " "))
    assert blank.err == "error: --allow-confounded: the reason is empty. Write a sentence.\n"


def test_a_display_that_breaks_does_not_end_the_sweep(capsys, tmp_path):
    class Broken:
        shown = 0

        def show(self, state):
            self.shown += 1
            raise RuntimeError("no terminal")

    from rltune.cli.console import make_console

    broken = Broken()
    watcher = Watcher(make_console(), broken)
    writer = FolderWriter(tmp_path)
    watcher.start(writer.run, writer.specs)
    watcher.tick()
    assert broken.shown == 1
    assert capsys.readouterr().err == (
        "warning: progress cannot be shown (RuntimeError: no terminal); the sweep goes on.\n"
    )


@pytest.mark.parametrize(("mode", "times"), [("online", 1), ("offline", 0)])
def test_an_unreachable_wandb_is_said_once(run_with, monkeypatch, tmp_path, mode, times):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    result, _ = run_with(arguments=("--seeds", "0", "--set", f"tracking.wandb={mode}"))
    said = "W&B cannot be used online. WANDB_API_KEY: no W&B key is set"
    assert result.err.count(said) == times
    assert result.err.count("`rltune sync` uploads them later.") == times


def test_a_run_that_resolved_otherwise_is_not_resumed_in_silence(run_with, tmp_path):
    old = FolderWriter(tmp_path).run  # pending, of the same file
    (same,) = (tmp_path / "runs").iterdir()
    renamed = same.with_name("kl-01234567")
    same.rename(renamed)
    assert old.path == same
    said = "runs/kl-01234567 is an unfinished run of this sweep file, but a file that it names was"
    assert said in " ".join(run_with()[0].err.split())
    assert said not in " ".join(run_with()[0].err.split())  # its own folder has begun
    shutil.rmtree(same)
    seeds = run_with(arguments=("--seeds", "0"))  # another question
    assert said not in " ".join(seeds[0].err.split())
