"""The final test: the frozen test split, played once by a trial's checkpoint, and its record.

The gate chooses among checkpoints by the held-out tasks, so its own numbers are optimistic. No
training, gate or report reads the test tasks; `test.json` counts how often they were evaluated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rltune.errors import CheckpointError, Problem, StoreError, TrialError
from rltune.gate import wilson_interval
from rltune.policy.load import Policy, weights_digest
from rltune.rollout.engine import Engine
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import read_json, utc_now, write_json_atomic
from rltune.store.jsonl import read_jsonl
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import load_checkpoint
from rltune.trainer.heldout import HeldoutResult, evaluate
from rltune.trainer.records.outcomes import fault_line, mean, outcome_metrics, set_metrics, valid
from rltune.trainer.train_state import make_train_state
from rltune_envs.base import Task, TextEnv
from rltune_envs.splits import Manifest

BEST, LATEST = "best", "latest"

Record = dict[str, Any]


@dataclass(frozen=True)
class TestJob:
    """Everything that one final test needs."""

    __test__ = False  # no pytest class

    trial: TrialDir  # whose checkpoint plays; gets the record
    config: TrialConfig  # resolved config of the trial
    config_hash: str  # identity of the config
    manifest: Manifest  # frozen tasks of the trial
    make_env: Callable[[], TextEnv]  # makes a fresh environment
    policy: Policy  # freshly loaded weights, as the trial began; the checkpoint's are put into them
    make_engine: Callable[[Policy], Engine]  # makes an engine that samples with those weights
    # what tests: commit, digests and versions, as plain JSON values
    code: Mapping[str, Any] = field(default_factory=dict)


def record_path(trial: TrialDir) -> Path:
    """Return where a trial's final test is recorded."""
    return trial.path / "test.json"


def read_record(trial: TrialDir) -> Record | None:
    """Return the recorded final test; None when the test tasks were never evaluated.

    Raises:
        StoreError: The file is no such record.

    """
    path = record_path(trial)
    if not path.exists():
        return None
    record = read_json(path)
    if not isinstance(record, dict) or not {"looks", "step", "success_rate"} <= set(record):
        action = "Restore it; deleting it would forget how often the test tasks were evaluated."
        raise StoreError(Problem(str(path), "is not a record of a final test.", action=action))
    return record


def checkpoint_step(trial: TrialDir, which: str) -> int:
    """Return the training step of a checkpoint: `best` (the gate's choice), `latest`, or a step.

    Raises:
        StoreError: No gate has finished, or there is no such checkpoint.

    """
    if not any(isinstance(row.get("step"), int) for row in read_jsonl(trial.heldout).rows):
        what = "no gate has finished, so no checkpoint is chosen."
        raise StoreError(Problem(str(trial.path), what, action="Let the trial run first."))
    links = {BEST: trial.best_heldout, "best_heldout": trial.best_heldout, LATEST: trial.latest}
    if which not in links and not (which.isascii() and which.isdigit()):
        allowed = f"Choose {BEST}, {LATEST}, or one of the steps {_steps_kept(trial)}."
        raise StoreError(Problem(str(trial.path), f"{which!r} names no checkpoint.", allowed))
    folder = links[which].resolve() if which in links else trial.checkpoint(int(which))
    if not folder.is_dir() or not folder.name.startswith("step-"):
        allowed = f"There are those of steps {_steps_kept(trial)}."
        raise StoreError(Problem(str(trial.path), f"checkpoint {which!r} is missing.", allowed))
    return int(folder.name.removeprefix("step-"))


def _steps_kept(trial: TrialDir) -> str:
    steps = [str(int(path.name[5:])) for path in sorted(trial.checkpoints.glob("step-*"))]
    return ", ".join(steps) or "(none)"


def read_manifest(run: Path, sha256: str) -> Manifest:
    """Return the frozen tasks with this digest out of a run folder.

    Raises:
        StoreError: No file holds these tasks, or one that names the digest was edited.

    """
    for path in sorted(run.glob("tasks*.json")):
        content = read_json(path)
        if isinstance(content, dict) and content.get("sha256") == sha256:
            try:
                return Manifest.from_json(content)
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(Problem(str(path), f"{error}.", action="Restore it.")) from error
    what = f"no tasks*.json here holds the tasks of the trial ({sha256[:10]})."
    raise StoreError(Problem(str(run), what, action="Restore the file as the sweep wrote it."))


def run_final_test(job: TestJob, *, which: str = BEST) -> Record:
    """Play every test task once with a checkpoint; record and return what came of it.

    Raises:
        StoreError: There are no test tasks, no gate has finished, or the checkpoint is missing,
            torn, or of another model than `policy.model` now holds.
        TrialError: Every episode had a fault; nothing is recorded.

    """
    tasks = job.manifest.test
    if not tasks:
        action = "Run the sweep with gate.test_tasks above 0, in another --runs-dir."
        what = "its frozen tasks have no test split (gate.test_tasks is 0)."
        raise StoreError(Problem(str(job.trial.path), what, action=action))
    step = checkpoint_step(job.trial, which)
    before = read_record(job.trial)
    restore(job, step)
    played = _play(job, tasks)
    if not valid(played.episodes):
        raise TrialError(
            f"{fault_line(played.episodes, where='final test')}. Repair it, and test again"
        )
    record = {
        "trial_id": job.trial.trial_id,
        "checkpoint": which if which in (BEST, LATEST) else "step",
        "step": step,
        "checkpoint_sha256": weights_digest(job.policy.model) or "unknown",
        "tokenizer_sha256": job.policy.tokenizer_sha256,
        **_outcome(job, tasks, played),
        "code": dict(job.code),
        "looks": 1 if before is None else before["looks"] + 1,
        "time": utc_now(),
        "earlier": _earlier(before),
    }
    write_json_atomic(record_path(job.trial), record)
    return record


def restore(job: TestJob, step: int) -> None:
    """Put a checkpoint's weights into the policy.

    Raises:
        StoreError: The checkpoint is missing, torn, or of another model.

    """
    folder = job.trial.checkpoint(step)
    train_state = make_train_state(job.policy, job.config)
    try:
        progress = load_checkpoint(folder, train_state, config_hash=job.config_hash)
    except CheckpointError as error:  # there is no trial that could go on without it
        raise StoreError(str(error)) from error
    if progress.step != step:
        what = f"it holds the state of step {progress.step}."
        raise StoreError(Problem(str(folder), what, action="Restore the folder."))


def _play(job: TestJob, tasks: Sequence[Task]) -> HeldoutResult:
    """Play as a gate does, with luck of its own, equal for every checkpoint."""
    engine = job.make_engine(job.policy)
    try:
        return evaluate(
            job.config,
            job.policy,
            engine,
            tasks,
            make_env=job.make_env,
            step=0,
            purpose="test",
        )
    finally:
        engine.close()


def _outcome(job: TestJob, tasks: Sequence[Task], played: HeldoutResult) -> Record:
    """Return what is measured; an episode with a fault is in no rate and no mean."""
    episodes, names = played.episodes, played.auxiliary_names
    counted = valid(episodes)
    successes = sum(episode.success for episode in counted)
    metrics = outcome_metrics(episodes, prefix="test", auxiliary_names=names)
    named = set_metrics(episodes, played.sets, prefix="test", auxiliary_names=names)
    temperature = job.config.gate.temperature
    return {
        "tasks_sha256": played.tasks_sha256,
        "manifest_sha256": job.manifest.sha256,
        "temperature": temperature,
        "do_sample": temperature > 0,
        "n": len(counted),
        "successes": successes,
        "success_rate": mean(episode.success for episode in counted),
        "interval": wilson_interval(successes, len(counted)),
        "floor": job.manifest.test_floor and asdict(job.manifest.test_floor),
        "ceiling": job.manifest.test_ceiling,
        "reward_mean": metrics["test/reward_mean"],
        "auxiliary": {name: metrics[f"test/{name}"] for name in names},
        **({"sets": named} if named else {}),
        "fault_count": len(episodes) - len(counted),
        "tasks": [task.task_id for task in tasks],
        "success": [int(episode.success) for episode in episodes],
        "failure_class": [episode.failure_class for episode in episodes],
        "fault": [episode.fault for episode in episodes],
    }


def _earlier(before: Mapping[str, Any] | None) -> list[Record]:
    """Return the earlier looks in short, oldest first: none of them is forgotten."""
    if before is None:
        return []
    kept = ("step", "checkpoint_sha256", "success_rate", "n", "time", "code")
    short = {key: before.get(key) for key in kept}
    return [*before.get("earlier", []), short]
