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


@dataclass(frozen=True, slots=True)
class TrialDir:
    """The files of one trial: `runs/<sweep>/trials/<trial_id>/`."""

    path: Path

    def create(self) -> "TrialDir":
        """Make the folders that are missing."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        return self

    @property
    def trial_id(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def config(self) -> Path:
        """Resolved config, every default spelled out."""
        return self.path / "config.yaml"

    @property
    def spec(self) -> Path:
        """The TrialSpec as JSON."""
        return self.path / "spec.json"

    @property
    def provenance(self) -> Path:
        """Commit, versions, hardware, weights; written when the trial starts."""
        return self.path / "provenance.json"

    @property
    def prompt(self) -> Path:
        """What the policy is shown of the first held-out task, up to its second response."""
        return self.path / "prompt.txt"

    @property
    def metrics(self) -> Path:
        """One object per training step."""
        return self.path / "metrics.jsonl"

    @property
    def heldout(self) -> Path:
        """One object per gate, with the outcome of every held-out task."""
        return self.path / "heldout.jsonl"

    @property
    def episodes(self) -> Path:
        """Every rollout group."""
        return self.path / "episodes.jsonl"

    @property
    def replays(self) -> Path:
        """A few training episodes in full, with the credit of every sampled token."""
        return self.path / "replays.jsonl"

    @property
    def judge_log(self) -> Path:
        """Every call to a language-model judge, with what it cost; never cut back."""
        return self.path / "judge.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def latest(self) -> Path:
        """Relative symlink to the newest whole checkpoint."""
        return self.checkpoints / "latest"

    @property
    def best_heldout(self) -> Path:
        """Relative symlink to the checkpoint that the gate chose."""
        return self.checkpoints / "best_heldout"

    @property
    def log(self) -> Path:
        """Standard output and error of the trial."""
        return self.path / "trial.log"

    @property
    def lock(self) -> Path:
        """Held by the process that runs the trial while it lives."""
        return self.path / "lock"

    @property
    def origin(self) -> Path:
        """What a rerun or a child comes from; a sweep's own trials have none."""
        return self.path / "origin.json"

    @property
    def start(self) -> Path:
        """Weights that a child starts from; other trials start from `policy.model`."""
        return self.path / "start" / "policy.safetensors"

    @property
    def verdict(self) -> Path:
        """What comparing a rerun with its original found."""
        return self.path / "verify.json"

    @property
    def card(self) -> Path:
        """Which step was shipped and why; `card.md` beside it says the same to people."""
        return self.path / "card.json"

    @property
    def stop(self) -> Path:
        """Once it exists, a rerun or a child checkpoints and ends."""
        return self.path / "STOP"

    @property
    def done(self) -> Path:
        """DONE marker."""
        return self.path / "DONE"

    @property
    def failed(self) -> Path:
        """FAILED marker."""
        return self.path / "FAILED"

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

    def create(self) -> "RunDir":
        """Make the folders that are missing."""
        self.trials.mkdir(parents=True, exist_ok=True)
        self.tune.mkdir(exist_ok=True)
        return self

    @property
    def sweep(self) -> Path:
        """The sweep file as it was read."""
        return self.path / "sweep.yaml"

    @property
    def plan(self) -> Path:
        """Every trial, resolved."""
        return self.path / "plan.json"

    @property
    def comparability(self) -> Path:
        """What the check before the run found."""
        return self.path / "comparability.json"

    @property
    def audit(self) -> Path:
        """What the check of the finished trials found."""
        return self.path / "audit.json"

    @property
    def results(self) -> Path:
        """The lineage table."""
        return self.path / "results.tsv"

    @property
    def ledger(self) -> Path:
        """What the driver planned, started and saw end."""
        return self.path / "ledger.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the driver while it lives."""
        return self.path / "driver.lock"

    @property
    def tune(self) -> Path:
        """Ray Tune's own folders, one a launch; never the source of truth."""
        return self.path / "tune"

    @property
    def trials(self) -> Path:
        """Folder of the trial folders."""
        return self.path / "trials"

    @property
    def children(self) -> Path:
        """Folder of the trials that were made from others; no part of the sweep's comparison."""
        return self.path / "children"

    @property
    def reruns(self) -> Path:
        """Folder of the repetitions: `<number>/<trial_id>`; no part of the comparison either."""
        return self.path / "reruns"

    def tasks(self, env_hash: str = "") -> Path:
        """Task manifest; with the hash of an env section when the axis changes the env."""
        return self.path / (f"tasks-{env_hash[:8]}.json" if env_hash else "tasks.json")

    def trial(self, trial_id: str) -> TrialDir:
        """Folder of one trial; StoreError when the id cannot name a folder."""
        return TrialDir(self.trials / require_name(trial_id, "trial_id"))

    def child(self, trial_id: str) -> TrialDir:
        """Folder of a child; StoreError when the id cannot name a folder."""
        return TrialDir(self.children / require_name(trial_id, "trial_id"))

    @property
    def inputs(self) -> Path:
        """Name of each file of frozen tasks -> the files that it was drawn from, with digests."""
        return self.path / "inputs.json"

    def trial_dirs(self) -> tuple[TrialDir, ...]:
        """Folders of the trials that exist, by name."""
        if not self.trials.is_dir():
            return ()
        return tuple(TrialDir(path) for path in sorted(self.trials.iterdir()) if path.is_dir())


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
