"""Inputs and outputs of a trial, as trackers record them.

Policies are named by the digest of their weights: a child's input is its parent's output.
"""

from collections.abc import Mapping
from pathlib import Path

from rltune.policy.load import Policy, file_digest
from rltune.remote.state import REMOTE
from rltune.store.files import sha256_file, write_json_atomic
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.track.base import Artifact
from rltune.track.make import outcome_summary
from rltune.trainer.job import Job
from rltune.types import TrialResult
from rltune_envs.splits import Manifest

_SHORT = 12  # characters of a digest in a name


def tasks_artifact(manifest: Manifest, file: Path) -> Artifact:
    """Return the frozen tasks of the sweep."""
    return Artifact(
        name=f"tasks-{manifest.sha256[:_SHORT]}",
        kind="tasks",
        files={file.name: file},
        metadata={"sha256": manifest.sha256},
    )


def start_artifact(trial: TrialDir, policy: Policy, *, model: str) -> Artifact:
    """Return the policy that a trial begins with.

    A child has the weights of its parent's checkpoint. A named model is not copied: its artifact
    holds its name and digests, in a file that is written for it.
    """
    if trial.start.exists():
        return _policy(policy.weights_sha256, trial.start, {})
    about = {
        "model": model,
        "weights_sha256": policy.weights_sha256,
        "tokenizer_sha256": policy.tokenizer_sha256,
    }
    file = trial.path / "wandb" / "policy.json"
    file.parent.mkdir(exist_ok=True)
    write_json_atomic(file, about)
    return _policy(policy.weights_sha256, file, about)


def chosen_artifact(trial: TrialDir, result: TrialResult, *, metric: str) -> Artifact:
    """Return the checkpoint that the gate chose."""
    folder = trial.checkpoint(result.best_step)
    is_remote = (folder / REMOTE).exists()
    weights = folder / (REMOTE if is_remote else "policy.safetensors")
    about: dict[str, str | float] = {"trial": trial.trial_id, "step": result.best_step}
    about[metric] = result.heldout_metric
    digest = sha256_file(weights) if is_remote else file_digest(weights)
    return _policy(digest, weights, about, "selected")


def record_outcome(job: Job, result: TrialResult) -> None:
    """Give the tracker what the chosen checkpoint measured, and its weights."""
    rows = read_metrics(job.trial.metrics).rows
    job.tracker.summary(outcome_summary(result, rows, metric=job.metric.name))
    if job.tracker.shows_media:
        job.tracker.make(chosen_artifact(job.trial, result, metric=job.metric.name))


def _policy(
    sha256: str, file: Path, metadata: Mapping[str, str | float], *aliases: str
) -> Artifact:
    return Artifact(
        name=f"policy-{sha256[:_SHORT]}",
        kind="model",
        files={file.name: file},
        metadata=metadata,
        aliases=aliases,
    )
