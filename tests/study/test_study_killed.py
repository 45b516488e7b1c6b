"""A study that is killed three times ends with the lineage of one that was left alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import HANG_S, wait_while_it_runs
from small_sweep import save_policy, small_sweep

from rltune.lineage.across import chain_across
from rltune.lineage.table import LineageStore
from rltune.runner.recorder import RESULTS
from rltune.runner.trial import read_provenance
from rltune.study.load import load_study
from rltune.study.state import standings

STUDY = """
name: three
question: Does it go on, whatever is killed?
sweeps:
  - {name: kl, file: kl.yaml}
  - {name: entropy, file: entropy.yaml, control: best kept of kl}
  - {name: clip, file: clip.yaml, control: best kept of entropy}
"""
AXES = {
    "kl": "",
    "entropy": "axis: {key: loss.entropy_coeff, values: [0.0, 0.01], control: 0.0}\n",
    "clip": "axis: {key: loss.clip_high, values: [0.28, 0.3], control: 0.28}\n",
}
HELD = "  loss.kl_loss_coef: 0.0\n  loss.use_kl_loss: false\n"


def write_study(folder: Path) -> Path:
    """Write three sweeps of two trials with two steps each."""
    text = small_sweep(
        policy=save_policy(folder / "policy"), checkpoint_every=1, values="[0.0, 0.01]"
    )
    before, _, rest = text.partition("axis:\n")
    tail = rest[rest.index("seeds:") :]
    for name, axis in AXES.items():
        made = text
        if axis:
            held = before + HELD
            if name == "entropy":
                held = held.replace("  loss.entropy_coeff: 0.0\n", "")
            made = held + axis + tail
        (folder / f"{name}.yaml").write_text(made.replace("name: small", f"name: {name}"))
    (folder / "study.yaml").write_text(STUDY)
    return folder / "study.yaml"


def start(study: Path, runs: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "rltune", "study", str(study), "--runs-dir", str(runs)]
    log = (study.parent / "log.txt").open("a")
    environment = {**os.environ, "RLTUNE_RUNS_DIR": str(runs)}
    return subprocess.Popen(
        command, cwd=study.parent, env=environment, stdout=log, stderr=subprocess.STDOUT
    )


def lineage(runs: Path) -> list[tuple]:
    """Return what the shared table says of every trial with a result, whatever its attempt."""
    rows = LineageStore.open(runs / "study-three" / "results.tsv").read().rows
    return sorted(
        (
            row.exp_id.partition(".a")[0] if ".a" in row.exp_id[-4:] else row.exp_id,
            row.parent_exp.rpartition(".a")[0] if ".a" in row.parent_exp[-4:] else row.parent_exp,
            row.status,
            row.core_metric,
            row.hypothesis,
        )
        for row in rows
        if row.status in RESULTS
    )


def running(study: Path, runs: Path, name: str):
    """Return a trial of a sweep that has measured a step and has not ended; None without one."""
    if not runs.is_dir():
        return None
    one = next(x for x in standings(load_study(study), runs) if x.sweep.name == name)
    if not one.is_settled:
        return None
    for trial in one.run.trial_dirs():
        has_measured = trial.metrics.is_file() and trial.metrics.stat().st_size
        if has_measured and not trial.done.exists() and "pid" in read_provenance(trial):
            return trial
    return None


def end(process: subprocess.Popen) -> None:
    """Kill a process and all that it started, as a machine that goes down does."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.kill()
    for child in family:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


@pytest.mark.slow
def test_it_ends_with_the_lineage_of_one_that_was_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path)
    alone = start(study, tmp_path / "alone")
    assert alone.wait(HANG_S) == 0, (tmp_path / "log.txt").read_text()
    runs = tmp_path / "killed"
    process = start(study, runs)
    try:
        wait_while_it_runs(process, lambda: running(study, runs, "kl"))
        process.kill()  # the driver alone
        process.wait()
        process = start(study, runs)
        trial = wait_while_it_runs(process, lambda: running(study, runs, "entropy"))
        os.kill(read_provenance(trial)["pid"], signal.SIGKILL)
        wait_while_it_runs(process, lambda: running(study, runs, "clip"))
        end(process)  # the machine
        process = start(study, runs)
        assert process.wait(HANG_S) == 0, (tmp_path / "log.txt").read_text()
    finally:
        end(process)
    assert len(lineage(runs)) == 6
    assert lineage(runs) == lineage(tmp_path / "alone")
    table = LineageStore.open(runs / "study-three" / "results.tsv")
    (clip,) = [
        row for row in table.read().rows if row.axis_value == "0.28" and row.status in RESULTS
    ]
    sweeps = [row.sweep for row in chain_across(table, clip.exp_id).rows]
    assert list(dict.fromkeys(sweeps)) == ["kl", "entropy", "clip"]
