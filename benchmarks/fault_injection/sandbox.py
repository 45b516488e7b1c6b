"""A small real sweep for faults: its folder, its command, and checks of its records.

Every process of a sandbox carries its name in its environment, so that orphans can be counted.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from rltune.lineage.table import LineageStore
from rltune.runner.recorder import RESULTS
from rltune.store.digest import metrics_digest
from rltune.store.jsonl import read_jsonl
from rltune.store.provenance import read_provenance
from rltune.store.rundir import RunDir, TrialDir

MARK = "RLTUNE_FAULT_SANDBOX"
PATIENCE_S = 900.0  # for hangs alone
STEPS = 60
CHECKPOINT_EVERY = 5
ROOT = Path(__file__).resolve().parents[2]
_MAIN = "from rltune.cli import main; main()"


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    text: str

    def says(self, *parts: str) -> bool:
        """Whether all of these are in what it printed, line breaks aside."""
        printed = " ".join(self.text.split())
        return all(part in printed for part in parts)


@dataclass
class Sandbox:
    """One sweep of two trials, one at a time, in its own folder.

    Attributes:
        folder: Where everything is; the run folders are below `runs`.
        changes: Config keys held at values other than the sandbox's.
        environment: Variables of every command.

    """

    folder: Path
    changes: Mapping[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.runs = self.folder / "runs"
        self.sweep = self.folder / "faults.yaml"
        self.write_sweep(self.changes)

    def write_sweep(self, changes: Mapping[str, object], *, base: str = "sokoban") -> None:
        """Write the sweep file with these keys held at values other than the sandbox's."""
        sweep = {**_sweep(changes), "base": base}
        self.sweep.write_text(yaml.safe_dump(sweep, sort_keys=False))

    @property
    def run(self) -> RunDir:
        """The run folder."""
        (folder,) = self.runs.glob("faults-*")
        return RunDir(folder)

    @property
    def trials(self) -> tuple[TrialDir, TrialDir]:
        """The control and the other one, in the order in which they run."""
        plan = json.loads(self.run.plan.read_text())
        first, second = (self.run.trial(row["trial_id"]) for row in plan["trials"])
        return first, second

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start an rltune command in a new session."""
        paths = [*self.environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
        return subprocess.Popen(
            [sys.executable, "-c", _MAIN, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            start_new_session=True,
            env={
                **os.environ,
                **self.environment,
                MARK: self.name,
                "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            },
            preexec_fn=_hear_signals,
        )

    def launch(self) -> subprocess.Popen[str]:
        """Start the sweep."""
        return self.start(*self.sweep_arguments)

    @property
    def sweep_arguments(self) -> Sequence[str]:
        """The arguments that run the sweep, one trial at a time."""
        return ("sweep", str(self.sweep), "--runs-dir", str(self.runs), "--max-concurrent", "1")

    def run_command(self, *arguments: str) -> Ended:
        """Run a command to its end."""
        return self.end(self.start(*arguments))

    def run_sweep(self) -> Ended:
        """Run the sweep command to its end; again where it has run before."""
        return self.end(self.launch())

    def end(self, process: subprocess.Popen[str]) -> Ended:
        """Wait for the end of a command."""
        text, _ = process.communicate(timeout=PATIENCE_S)
        return Ended(process.returncode, text)

    def wait(self, process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
        """Wait until something holds while the command runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if process.poll() is not None:
                raise RuntimeError(f"it ended before: {self.end(process)}")
            if time.monotonic() > deadline:
                raise TimeoutError("waited too long")
            time.sleep(0.02)

    def second_trains(self, *, attempt: int = 1, steps: int = CHECKPOINT_EVERY + 2) -> bool:
        """Whether the first trial is done and the second has made some steps."""
        if not any(self.runs.glob("faults-*/plan.json")):
            return False
        first, second = self.trials
        if not first.done.exists() or read_provenance(second).get("attempt") != attempt:
            return False
        return steps_of(second) >= steps and any(second.checkpoints.glob("step-*"))

    def worker(self, trial: TrialDir) -> int:
        """Return the process that trains this trial."""
        return int(read_provenance(trial)["pid"])

    def orphans(self) -> int:
        """Return how many of the sandbox's processes do not end, however long one waits."""
        deadline = time.monotonic() + PATIENCE_S
        while (alive := processes_of(self.name)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return len(alive)

    def digests(self) -> dict[str, str]:
        """Return what each trial measured, clocks aside."""
        return {trial.trial_id: metrics_digest(trial.metrics) for trial in self.trials}

    def record_problems(self, *, most_ends: int) -> list[str]:
        """Return what is wrong with the records of a finished sweep; empty when nothing is.

        Args:
            most_ends: How often a trial may have ended.

        """
        wrong = []
        rows = LineageStore.open(self.run.results).read().rows
        events = read_jsonl(self.run.ledger).rows
        for trial in self.trials:
            done = [e for e in events if e["trial_id"] == trial.trial_id and e["event"] == "done"]
            mine = [row for row in rows if row.trial_id == trial.trial_id]
            results = [row for row in mine if row.status in RESULTS]
            if not trial.done.exists():
                wrong.append(f"{trial.trial_id} is not done")
            if not 1 <= len(done) <= most_ends or len(results) != 1:
                wrong.append(f"{trial.trial_id}: done {len(done)} times, {len(results)} results")
        return wrong


def _hear_signals() -> None:
    """Undo what a sandbox in the background may have inherited: ignored signals stay ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def steps_of(trial: TrialDir) -> int:
    """Return the last step that the trial has measured; -1 before the first."""
    if not trial.metrics.exists():
        return -1
    return max((int(row["step"]) for row in read_jsonl(trial.metrics).rows), default=-1)


def processes_of(name: str) -> list[int]:
    """Return the living processes that carry the sandbox's name, zombies aside."""
    pids = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            is_ours = f"{MARK}={name}".encode() in (path / "environ").read_bytes()
            is_zombie = (path / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if is_ours and not is_zombie:
            pids.append(int(path.name))
    return pids


def _sweep(changes: Mapping[str, object]) -> dict[str, object]:
    """Return the quickstart's file, made small."""
    sweep = yaml.safe_load((ROOT / "sweeps" / "quickstart.yaml").read_text())
    sweep["name"] = "faults"
    sweep["seeds"] = [0]
    sweep["axis"]["values"] = [0.0, 0.01]
    sweep["hold"] |= {
        "budget.steps": STEPS,
        "checkpoint.every": CHECKPOINT_EVERY,
        "rollout.groups": 2,
        "rollout.group_size": 4,
        "optim.mini_batch_size": 8,
        "optim.micro_batch_size": 8,
        "env.train_tasks": 128,
        "gate.every": STEPS // 2,
        "gate.tasks": 16,
        "gate.test_tasks": 2,
        "tracking.wandb": "disabled",
        **changes,
    }
    return sweep
