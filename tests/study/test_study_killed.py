"""A study that is killed three times ends with the lineage of one that was left alone."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from patience import HANG_S, wait_while_it_runs
from small_sweep import save_policy, small_sweep

from rltune.lineage.across import chain_across
from rltune.lineage.record import Proposal
from rltune.lineage.table import LineageStore
from rltune.runner.folder import freeze_all, write_folder
from rltune.runner.provenance import driver_provenance
from rltune.runner.recorder import RESULTS, open_recorder
from rltune.runner.trial import TrialPayload, run_trial
from rltune.spec.expand import expand
from rltune.store.provenance import read_provenance
from rltune.store.rundir import RunDir, TrialDir

STUDY = """
name: three
question: Does it go on, whatever is killed?
sweeps:
  - {name: kl, file: kl.yaml}
  - {name: entropy, file: entropy.yaml, control: best kept of kl}
  - {name: rate, file: rate.yaml, control: best kept of entropy}
"""
AXES = {
    "kl": "",
    "entropy": "axis: {key: loss.entropy_coeff, values: [0.0, 0.01], control: 0.0}\n",
    "rate": "axis: {key: optim.lr, values: [1.0e-3, 1.0e-2], control: 1.0e-3}\n",
}
HELD = "  loss.kl_loss_coef: 0.0\n  loss.use_kl_loss: false\n"
# No control: what ends before its control is compared with nothing.
TREATED = "kl/kl_loss_coef=0.01"
POLL_S = 0.05
SECOND = re.compile(r"\.a\d+$")  # of the id of a later attempt's row


def write_study(folder: Path) -> Path:
    """Write three sweeps of two trials with two steps each."""
    policy = save_policy(folder / "policy")
    text = small_sweep(policy=policy, checkpoint_every=1, values="[0.0, 0.01]")
    before, _, rest = text.partition("axis:\n")
    tail = rest[rest.index("seeds:") :]
    for name, axis in AXES.items():
        held = before + HELD
        if name == "entropy":
            held = held.replace("  loss.entropy_coeff: 0.0\n", "")
        made = held + axis + tail if axis else text
        (folder / f"{name}.yaml").write_text(made.replace("name: small", f"name: {name}"))
    (folder / "study.yaml").write_text(STUDY)
    return folder / "study.yaml"


def train_here(request, console) -> int:
    """Stand in for the launch of a sweep: its trials one after the other in this process."""
    loaded = request.loaded
    specs = expand(loaded)
    run = RunDir(request.runs_dir / loaded.run_name).create()
    tasks = freeze_all(run, specs, base=Path.cwd())
    write_folder(run, loaded, request.proof, specs, tasks, allowed=None)
    for spec in specs:
        run_trial(
            TrialPayload(
                spec=spec,
                folder=run.trial(spec.trial_id).path,
                manifest=tasks[spec.trial_id].path,
                metric=loaded.spec.metric,
                attempt=1,
                driver=driver_provenance(["test"]),
                stop_file=run.path / "stop",
                base=Path.cwd(),
            )
        )
    recorder = open_recorder(
        run,
        launch="launch-0001",
        metric=(loaded.spec.metric.name, loaded.spec.metric.mode),
        commit="c",
        disqualified="",
        shared=request.lineage,
        proposal=Proposal(loaded.spec.hypothesis, loaded.spec.specialist, loaded.spec.parent),
    )
    recorder.reconcile_all(specs)
    recorder.close(specs)
    return 0


def start(study: Path, runs: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "rltune", "study", str(study), "--runs-dir", str(runs)]
    with (study.parent / "log.txt").open("a") as log:
        return subprocess.Popen(command, cwd=study.parent, stdout=log, stderr=log)


def lineage(runs: Path) -> list[tuple]:
    """Return what the shared table says of every trial with a result, whatever its attempt."""
    rows = LineageStore.open(runs / "study-three" / "results.tsv").read().rows
    return sorted(
        (
            SECOND.sub("", row.exp_id),
            SECOND.sub("", row.parent_exp),
            row.status.value,
            row.core_metric,
            row.hypothesis,
        )
        for row in rows
        if row.status in RESULTS
    )


def running(runs: Path, name: str) -> TrialDir | None:
    """Return a trial that has measured something and not ended; None without one.

    `name` is how its folder begins: sweep, and where it matters the condition.
    """
    sweep, _, condition = name.partition("/")
    for folder in runs.glob(f"{sweep}-*/trials/{condition}*"):
        trial = TrialDir(folder)
        has_measured = trial.metrics.is_file() and trial.metrics.stat().st_size
        has_ended = trial.done.exists() or trial.failed.exists()
        if has_measured and not has_ended and psutil.pid_exists(pid_of(trial)):
            return trial
    return None


def pid_of(trial: TrialDir) -> int:
    """Return the process that runs a trial, as it has recorded; none has the number -1."""
    return int(read_provenance(trial).get("pid", -1))


def died(trial: TrialDir) -> bool:
    """Tell whether the driver has recorded that a trial died."""
    table = RunDir(trial.path.parents[1]).results
    rows = LineageStore.open(table).read().rows if table.is_file() else ()
    return any(row.trial_id == trial.trial_id and row.status not in RESULTS for row in rows)


def kill_all(process: subprocess.Popen) -> None:
    """Kill a process and all that it started, as a machine that goes down does."""
    family = []
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in family:
        if child.is_running():
            child.kill()
    process.wait()


@pytest.mark.slow
def test_it_ends_with_the_lineage_of_one_that_was_left_alone(tmp_path, monkeypatch):
    from rltune.cli.entry import run

    monkeypatch.chdir(tmp_path)
    study, threads = write_study(tmp_path), torch.get_num_threads()
    with monkeypatch.context() as patched:
        patched.setattr("rltune.cli.study.run", train_here)
        assert run(["study", str(study), "--runs-dir", "alone"]) == 0
    torch.set_num_threads(threads)
    runs = tmp_path / "killed"
    process = start(study, runs)
    try:
        trial = wait_while_it_runs(process, lambda: running(runs, TREATED), every_s=POLL_S)
        os.kill(pid_of(trial), signal.SIGKILL)  # a trial; the driver goes on, and tries it again
        wait_while_it_runs(process, lambda: died(trial), every_s=POLL_S)
        wait_while_it_runs(process, lambda: running(runs, TREATED), every_s=POLL_S)
        process.kill()  # the driver alone
        process.wait()
        process = start(study, runs)
        wait_while_it_runs(process, lambda: running(runs, "entropy"), every_s=POLL_S)
        kill_all(process)  # the machine: every process at once
        process = start(study, runs)
        assert process.wait(HANG_S) == 0, (tmp_path / "log.txt").read_text()
    finally:
        kill_all(process)
    assert len(lineage(runs)) == 6
    assert lineage(runs) == lineage(tmp_path / "alone")
    table = LineageStore.open(runs / "study-three" / "results.tsv")
    rows = [row for row in table.read().rows if row.status in RESULTS]
    (last,) = [row.exp_id for row in rows if row.condition == "lr=0.001"]
    sweeps = [row.sweep for row in chain_across(table, last).rows]
    assert sweeps == ["kl", "entropy", "rate"]
