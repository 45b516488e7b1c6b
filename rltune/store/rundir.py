"""The folders of a sweep and of a trial: where each file is, and what the markers prove.

A trial's state is read from its files alone. DONE holds its result, FAILED why it ended;
both appear by atomic rename, so a marker that exists is whole.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from rltune.errors import Problem, StoreError
from rltune.store.failure import TrialFailure
from rltune.store.files import read_json, write_json_atomic
from rltune.store.markers import read_failure, read_marker, read_result, require_fields
from rltune.types import TrialResult, TrialSpec, TrialStatus

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+,@~-]*")


def require_name(name: str, what: str) -> str:
    """Return `name` when it can name a folder and sit in a TSV cell as it is."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            Problem(
                what,
                f"{name!r} cannot name a folder.",
                f"Allowed: {_NAME.pattern}, no slash or space.",
            )
        )
    return name


class File:
    """A path below the folder that has it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "TrialDir | RunDir", kind: type) -> Path:
        """Return the path."""
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class TrialDir:
    """The files of one trial: `runs/<sweep>/trials/<trial_id>/`."""

    path: Path

    config = File("config.yaml")  # resolved config, every default spelled out
    spec = File("spec.json")  # the TrialSpec as JSON
    provenance = File("provenance.json")  # commit, versions, hardware, weights; from the start
    prompt = File("prompt.txt")  # what the policy is shown of the first held-out task
    metrics = File("metrics.jsonl")  # one object per training step
    heldout = File("heldout.jsonl")  # one object per gate, with the outcome of every held-out task
    episodes = File("episodes.jsonl")  # every rollout group
    replays = File("replays.jsonl")  # a few training episodes, with the credit of every token
    judge_log = File("judge.jsonl")  # every call to a judge and its cost; never cut back
    service = File("service.json")  # what it asked of a training service; never cut back
    checkpoints = File("checkpoints")  # all checkpoints
    latest = File("checkpoints/latest")  # relative symlink to the newest whole checkpoint
    best_heldout = File("checkpoints/best_heldout")  # likewise: the one that the gate chose
    log = File("trial.log")  # standard output and error of the trial
    lock = File("lock")  # held by the process that runs the trial while it lives
    origin = File("origin.json")  # what a rerun or a child comes from; else missing
    start = File("start/policy.safetensors")  # weights that a child starts from
    verdict = File("verify.json")  # what comparing a rerun with its original found
    model_card = File("card.json")  # which step was shipped and why; card.md in words
    stop = File("STOP")  # once it exists, a rerun or a child checkpoints and ends
    done = File("DONE")  # its result, once it has one
    failed = File("FAILED")  # why it ended without one

    def create(self) -> "TrialDir":
        """Make the folders that are missing."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        return self

    @property
    def trial_id(self) -> str:
        """Name of the folder."""
        return self.path.name

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint after `step` training steps."""
        return self.checkpoints / f"step-{step:06d}"

    def write_spec(self, spec: TrialSpec) -> None:
        """Write the TrialSpec."""
        write_json_atomic(self.spec, spec)

    def read_spec(self) -> TrialSpec:
        """Read the TrialSpec; StoreError when it is missing or of another version."""
        data = require_fields(read_json(self.spec), TrialSpec, self.spec)
        return TrialSpec(**data)

    def write_done(self, result: TrialResult) -> None:
        """Mark the trial as finished."""
        write_json_atomic(self.done, result)

    def read_done(self) -> TrialResult | None:
        """Return the result, or None when the trial has none yet, or half a marker."""
        return read_result(self.done)

    def write_failed(self, failure: TrialFailure) -> None:
        """Mark this attempt as ended without a result."""
        write_json_atomic(self.failed, failure)

    def read_failed(self) -> TrialFailure | None:
        """Return why the last attempt failed; None when it did not, or left half a marker."""
        return read_failure(self.failed)

    def torn_markers(self) -> tuple[str, ...]:
        """Return the names of markers that are not JSON: a broken disk left them, no proof."""
        markers = (self.done, self.failed)
        return tuple(path.name for path in markers if path.exists() and read_marker(path) is None)

    def clear_failed(self) -> None:
        """Set the marker of an earlier attempt aside as `FAILED.<attempt>`: a new one begins."""
        if failure := self.read_failed():
            self.failed.rename(self.failed.with_name(f"FAILED.{failure.attempt}"))


@dataclass(frozen=True, slots=True)
class RunDir:
    """The files of one sweep: `runs/<sweep>-<hash8>/`."""

    path: Path

    sweep = File("sweep.yaml")  # the sweep file as it was read
    plan = File("plan.json")  # every trial, resolved
    comparability = File("comparability.json")  # what the check before the run found
    audit = File("audit.json")  # what the check of the finished trials found
    results = File("results.tsv")  # the lineage table
    looks = File("looks.jsonl")  # with seeds until decided: what each look found
    ledger = File("ledger.jsonl")  # what the driver planned, started and saw end
    lock = File("driver.lock")  # held by the driver while it lives
    tune = File("tune")  # Ray Tune's own folders, one a launch; never the source of truth
    trials = File("trials")  # one folder a trial
    children = File("children")  # trials made from others; no part of the comparison
    reruns = File("reruns")  # repetitions, <number>/<trial_id>; no part of it either
    models = File("models")  # exported checkpoints, which references to trials stand for
    inputs = File("inputs.json")  # file of frozen tasks -> its sources and their digests

    def create(self) -> "RunDir":
        """Make the folders that are missing."""
        self.trials.mkdir(parents=True, exist_ok=True)
        self.tune.mkdir(exist_ok=True)
        return self

    def tasks(self, env_hash: str = "") -> Path:
        """Task manifest; with the hash of an env section when the axis changes the env."""
        return self.path / (f"tasks-{env_hash[:8]}.json" if env_hash else "tasks.json")

    def trial(self, trial_id: str) -> TrialDir:
        """Folder of one trial; StoreError when the id cannot name a folder."""
        return TrialDir(self.trials / require_name(trial_id, "trial_id"))

    def child(self, trial_id: str) -> TrialDir:
        """Folder of a child; StoreError when the id cannot name a folder."""
        return TrialDir(self.children / require_name(trial_id, "trial_id"))

    def trial_dirs(self) -> tuple[TrialDir, ...]:
        """Folders of the trials that exist, by name."""
        if not self.trials.is_dir():
            return ()
        return tuple(TrialDir(path) for path in sorted(self.trials.iterdir()) if path.is_dir())

    def child_dirs(self) -> tuple[TrialDir, ...]:
        """Folders of the children that have begun, by name."""
        folders = map(TrialDir, sorted(self.children.iterdir()) if self.children.is_dir() else ())
        return tuple(folder for folder in folders if folder.spec.is_file())

    def rerun_dirs(self) -> tuple[TrialDir, ...]:
        """Folders of the repetitions, by number."""
        paths = sorted(self.reruns.glob("[0-9]*/*"))
        return tuple(TrialDir(path) for path in paths if path.is_dir())

    def new_rerun(self, trial_id: str) -> TrialDir:
        """Make the folder of one more repetition of a trial; never one that exists."""
        require_name(trial_id, "trial_id")
        numbers = [int(path.name) for path in self.reruns.glob("[0-9]*") if path.name.isdigit()]
        number = max(numbers, default=0) + 1
        while True:
            folder = self.reruns / f"{number:04d}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:  # another process took it
                number += 1
            else:
                return TrialDir(folder / trial_id).create()


def trial_status(trial: TrialDir) -> TrialStatus:
    """Return the status that the trial's files prove.

    RUNNING means started and without a marker: whether its process still lives is the
    driver's to know, since a killed process leaves the same files.
    """
    if result := trial.read_done():
        return result.status
    if failure := trial.read_failed():
        return failure.trial_status
    if trial.provenance.exists() or trial.metrics.exists():
        return TrialStatus.RUNNING
    return TrialStatus.PENDING
